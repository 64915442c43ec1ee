"""What the phone adds to pages of MiniWoB++, and the JavaScript that runs and reads them.

`$LIMIT`, `$PAUSE`, `$REWARD` and `$ELEMENTS` are replaced.
"""

HEAD = """<meta name="viewport" content="width=160, user-scalable=no"><style>
html {overflow: hidden}  /* hidden in the body, it would cut off what is below 210 pixels */
html, body {background: white !important; touch-action: manipulation}
#reward-display, #click-canvas {display: none}
#sync-task-cover {pointer-events: none}  /* a tap on it would begin another episode */
/* A list in the page: the phone's own would cover the page, and the page could not be read. */
select:not([multiple]), ::picker(select) {appearance: base-select}
select:not([multiple]) {min-block-size: 0; padding: 1px 4px; border-radius: 3px}
select:not([multiple]) option {min-block-size: 0; padding: 1px 4px; font-size: 10px}
</style><script>
// A finger that moves, and does not scroll, is also a mouse with its button held down. Taps are
// unchanged: for them the browser itself sends mouse events.
(() => {
    let start = null, isMouse = false, hovered = null
    const send = (kind, touch, target, relatedTarget = null) => {
        const event = new MouseEvent(kind, {
            bubbles: true, cancelable: true, composed: true, view: window, detail: 1, relatedTarget,
            clientX: touch.clientX, clientY: touch.clientY,
            screenX: touch.screenX, screenY: touch.screenY, buttons: kind === 'mouseup' ? 0 : 1,
        })
        // The constructor rounds positions, and a pixel of the page has several of the screen.
        for (const name of ['clientX', 'clientY', 'pageX', 'pageY'])
            Object.defineProperty(event, name, {value: touch[name]})
        target.dispatchEvent(event)
    }
    const leave = (touch, target) => {
        if (hovered && hovered !== target) send('mouseout', touch, hovered, target)
    }
    const move = (touch, target) => {
        leave(touch, target)
        if (hovered !== target) send('mouseover', touch, target, hovered)
        hovered = target
        send('mousemove', touch, target)
    }
    const under = touch => document.elementFromPoint(touch.clientX, touch.clientY) ?? document.body
    const scrolls = one => {
        for (; one && one !== document.body; one = one.parentElement)
            if ((one.scrollHeight > one.clientHeight || one.scrollWidth > one.clientWidth) &&
                /auto|scroll/.test(getComputedStyle(one).overflow)) return true
        return false
    }
    addEventListener('touchstart', event => {
        [start, isMouse] = [event.touches.length === 1 ? event.touches[0] : null, false]
        // The mouse is where the last drag has left it.
        leave(event.touches[0], event.target)
        hovered = null
    }, true)
    addEventListener('touchmove', event => {
        if (!start || !isMouse && scrolls(start.target)) return
        event.preventDefault()
        if (!isMouse) {
            move(start, start.target)
            send('mousedown', start, start.target)
        }
        isMouse = true
        move(event.touches[0], under(event.touches[0]))
    }, {capture: true, passive: false})
    for (const kind of ['touchend', 'touchcancel']) addEventListener(kind, event => {
        if (isMouse) send('mouseup', event.changedTouches[0], under(event.changedTouches[0]))
        isMouse = false
    }, true)
})()
</script>"""
ELEMENTS = """(() => {
    const ownText = one => [...one.childNodes]
        .filter(child => child.nodeType === Node.TEXT_NODE).map(child => child.data).join('')
    // The page may cut off a part of an element, which cannot be touched there.
    const visible = one => {
        let {left, top, right, bottom} = one.getBoundingClientRect(), view = null
        while ((one = one.parentElement) && one !== document.body) {
            const {overflowX, overflowY} = getComputedStyle(one)
            if (overflowX === 'visible' && overflowY === 'visible') continue
            const box = one.getBoundingClientRect()
            left = Math.max(left, box.left), right = Math.min(right, box.right)
            top = Math.max(top, box.top), bottom = Math.min(bottom, box.bottom)
            if (one.scrollHeight > one.clientHeight && /auto|scroll/.test(overflowY)) view ??= box
        }
        return {left, top, right, bottom, view}
    }
    return [...document.querySelectorAll('body *:not(#query, #query *, #sync-task-cover)')]
        .filter(one => !['SCRIPT', 'STYLE'].includes(one.tagName))
        .map(one => {
            const box = one.getBoundingClientRect(), {view, ...part} = visible(one)
            const isVisible = part.left <= part.right && part.top <= part.bottom
            const {left, top, right, bottom} = isVisible ? part : box
            const [x, y] = [(left + right) / 2, (top + bottom) / 2]
            const hit = document.elementFromPoint(x, y)
            return {
                tag: one.tagName.toLowerCase(), id: one.id, classes: [...one.classList],
                text: (one.tagName === 'LABEL' ? one.textContent : ownText(one)).trim(),
                label: one.dataset.color ?? one.dataset.type ?? '',
                value: String(one.value ?? ''),
                fill: one.getAttribute('fill') ?? '',
                checked: Boolean(
                    (one.querySelector(':scope > input') ?? one).checked ?? one.selected
                ),
                tapped: one.dataset.tampered === 'e' + WOB_EPISODE_ID,
                focused: one === document.activeElement,
                touchable: Boolean(isVisible && hit && (one.contains(hit) || hit.contains(one))),
                x: x / innerWidth, y: y / innerWidth,
                width: box.width / innerWidth, height: box.height / innerWidth,
                view: view ? [view.top / innerWidth, view.bottom / innerWidth] : null,
            }
        }).filter(one => one.height > 0)
})()"""
"""JavaScript: the page's elements; positions are in widths of the page."""
BEGIN = """(async () => {
    // An animation may pause for longer than it takes a screen to count as settled.
    if (window.jQuery) jQuery.fx.off = true
    $LIMIT
    Math.seedrandom('{seed}')
    core.startEpisodeReal()
    while (!WOB_TASK_READY) await new Promise(done => setTimeout(done, 20))
    $PAUSE
})()"""
STATE = """(() => {
    $PAUSE
    const said = core.getUtterance()
    return {
        score: $REWARD, done: WOB_DONE_GLOBAL, instruction: String(said.utterance ?? said),
        reason: WOB_REWARD_REASON, elements: $ELEMENTS,
        metrics: {success: Number(WOB_RAW_REWARD_GLOBAL > 0), reward: $REWARD},
    }
})()"""
PAUSE = "if (core.EP_TIMER !== null) {clearTimeout(core.EP_TIMER); core.paused = Date.now()}"
RESUME = """if (core.EP_TIMER !== null) {
    core.ept0 += Date.now() - core.paused
    core.EP_TIMER = setTimeout(
        () => core.endEpisode(-1, false, 'timed out'),
        core.EPISODE_MAX_TIME - (Date.now() - core.ept0),
    )
}"""
