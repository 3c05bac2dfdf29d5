"""Pages: the site of the documents, made of the files of the repository.

    docs/, ARCHITECTURE.md, ..  ──placed──▶  build/pages  ──mkdocs──▶  build/site  ──looked at──▶

`mkdocs.yml` has no hook and no plugin of ours: what it builds lies in `build/pages`, where links
between files of the repository have become links between pages.

    python -m pages     places, builds strictly and looks at what was built: `make docs`
"""
