from graphlib import TopologicalSorter

import grimp


def test_no_modules_import_each_other_in_a_circle():
    """Imports in functions and for type checking count; those of a package by its parts do not."""
    graph = grimp.build_graph("agentrl", exclude_type_checking_imports=False)
    imports = {
        module: {
            name
            for name in graph.find_modules_directly_imported_by(module)
            if not module.startswith(f"{name}.")
        }
        for module in graph.modules
    }
    TopologicalSorter(imports).prepare()
