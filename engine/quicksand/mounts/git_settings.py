"""Settings of git that name commands, or files that git runs or obeys; each with its page of git's
manual. `*` is any key of its section; subsections are left out."""

from __future__ import annotations

INCLUDES = frozenset({"include.path", "includeif.path"})  # git-config(1), "Includes"

PATHS = frozenset(
    {
        "core.hookspath",  # githooks(5)
        "core.attributesfile",  # gitattributes(5): it chooses filters and drivers
        "init.templatedir",  # git-init(1), "TEMPLATE DIRECTORY": its hooks are copied
    }
)

COMMANDS = frozenset(
    {
        # git-config(1)
        "core.fsmonitor", "core.sshcommand", "core.editor", "core.pager", "core.askpass",
        "core.gitproxy", "core.alternaterefscommand", "sequence.editor", "interactive.difffilter",
        "pager.*", "alias.*", "browser.cmd", "browser.path", "man.cmd", "man.path",
        "remote.uploadpack", "remote.receivepack", "uploadpack.packobjectshook",
        "gpg.program", "gpg.defaultkeycommand", "guitool.cmd", "tar.command",
        "gc.recentobjectshook",
        # gitattributes(5)
        "filter.clean", "filter.smudge", "filter.process", "diff.command", "diff.textconv",
        "diff.external", "merge.driver",
        # git-mergetool(1), git-difftool(1)
        "mergetool.cmd", "mergetool.path", "difftool.cmd", "difftool.path",
        # gitcredentials(7)
        "credential.helper",
        # git-interpret-trailers(1)
        "trailer.command", "trailer.cmd",
        # git-submodule(1), "update"
        "submodule.update",
        # git-send-email(1), git-imap-send(1)
        "sendemail.sendmailcmd", "sendemail.smtpserver", "sendemail.tocmd", "sendemail.cccmd",
        "sendemail.headercmd", "imap.tunnel",
        # git-instaweb(1), git-svn(1)
        "instaweb.browser", "instaweb.httpd", "instaweb.modulepath", "svn.authorsprog",
        # git-lfs-config(5)
        "lfs.path", "lfs.clean", "lfs.smudge",
        # git-hook(1)
        "hook.command",
    }
)  # fmt: skip

HOOKS = (
    # githooks(5)
    "applypatch-msg", "pre-applypatch", "post-applypatch", "pre-commit", "pre-merge-commit",
    "prepare-commit-msg", "commit-msg", "post-commit", "pre-rebase", "post-checkout", "post-merge",
    "pre-push", "pre-receive", "update", "proc-receive", "post-receive", "post-update",
    "reference-transaction", "push-to-checkout", "pre-auto-gc", "post-rewrite",
    "sendemail-validate", "fsmonitor-watchman", "p4-changelist", "p4-prepare-changelist",
    "p4-post-changelist", "p4-pre-submit", "post-index-change",
)  # fmt: skip
