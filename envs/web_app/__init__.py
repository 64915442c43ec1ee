"""Web pages in a phone's browser: any folder with an app, and MiniWoB++."""
