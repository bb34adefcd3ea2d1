# What a desktop with systemd, and with Debian's scripts for a session, starts.

# --- A boot leaves out what no sandbox needs (logins on consoles, updates by the clock, kernel
# interfaces for debugging) and what the build has done already.
for unit in getty@tty1.service serial-getty@ttyS0.service autovt@.service \
    systemd-ask-password-wall.path systemd-ask-password-console.path \
    apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer systemd-tmpfiles-clean.timer \
    tmp.mount dev-hugepages.mount dev-mqueue.mount sys-kernel-debug.mount sys-kernel-tracing.mount \
    sys-kernel-config.mount sys-fs-fuse-connections.mount proc-sys-fs-binfmt_misc.automount \
    proc-sys-fs-binfmt_misc.mount systemd-binfmt.service modprobe@.service \
    ldconfig.service systemd-hwdb-update.service systemd-journal-catalog-update.service \
    systemd-sysusers.service systemd-update-done.service systemd-firstboot.service \
    systemd-random-seed.service systemd-pstore.service systemd-networkd-wait-online.service; do
    ln -sf /dev/null "/etc/systemd/system/$unit"
done
mkdir -p /etc/systemd/journald.conf.d
cat >/etc/systemd/journald.conf.d/quicksand.conf <<'END'
# A journal in memory, and a small one: it would be part of every checkpoint.
[Journal]
Storage=volatile
RuntimeMaxUse=4M
END
cat >/etc/X11/Xsession.d/36quicksand_root <<'END'
# Programs that root starts may use this display, as the user's own may (35x11-common_xhost-local).
# A cookie in ~/.Xauthority is not enough: it counts for the host name of the time of the login.
if type xhost >/dev/null 2>&1; then
    xhost "+si:localuser:root" >/dev/null || :
fi
END
