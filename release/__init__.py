"""Release: makes the archives of a version, and tries them as their users will.

`python -m release` does all of it, and uploads nothing (docs/adr/0132):

    __main__      the steps in their order, and the table at the end
    archives      builds wheel and source archive, and compares them with what git has
    environments  empty environments, in which an archive is installed and tried
    trial         what runs there: the example of README, and a few lines of each extra
"""
