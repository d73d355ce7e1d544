#!/usr/bin/env bash
# Demo and test as a new user meets them: in a bare Debian 12 made with debootstrap, as root and as an ordinary user with
# sudo, each from a fresh clone of the last commit.  Needs root.  Logs and the summary are in out/fresh.
#
# usage: tools/fresh.sh [root|user]...
set -uo pipefail
cd "$(dirname "$0")/.."
[ "$(id -u)" = 0 ] || { echo "./dev fresh: making a chroot needs root" >&2; exit 1; }
command -v debootstrap >/dev/null || { apt-get update -qq && apt-get install -y -qq debootstrap >/dev/null; }
roles=("$@")
[ ${#roles[@]} -gt 0 ] || roles=(root user)
folder=$(mktemp -d /var/tmp/tensorkv-fresh.XXXXXX)
logs=$PWD/out/fresh
mkdir -p "$logs"
cleanup() {  # what the tests have mounted there too: namespaces of networks
  local point
  while IFS= read -r point; do umount -l "$point" 2>/dev/null; done < <(awk -v under="$folder/" 'index($2, under) == 1 {print $2}' /proc/self/mounts | sort -r)
  rm -rf --one-file-system "$folder"
}
trap cleanup EXIT

echo "fresh: bare Debian 12 in $folder"
debootstrap --variant=minbase --include=ca-certificates,git,sudo bookworm "$folder/base" >"$logs/debootstrap.log" 2>&1 || { tail "$logs/debootstrap.log"; exit 1; }
result=0
summary=()
for role in "${roles[@]}"; do
  root=$folder/$role
  cp -a "$folder/base" "$root"
  # The network and the package sources of this machine, so that the new one reaches the same registries.
  cp /etc/resolv.conf /etc/hosts "$root/etc/" 2>/dev/null
  rm -f "$root/etc/apt/sources.list"
  cp -r /etc/apt/sources.list /etc/apt/sources.list.d /etc/apt/apt.conf.d /etc/apt/auth.conf.d /etc/apt/trusted.gpg.d "$root/etc/apt/" 2>/dev/null
  cp -r /usr/local/share/ca-certificates/. "$root/usr/local/share/ca-certificates/" 2>/dev/null
  cp /etc/pip.conf "$root/etc/" 2>/dev/null
  cp -r /etc/ssl/certs/. "$root/etc/ssl/certs/" 2>/dev/null
  for point in proc sys dev; do mount --rbind "/$point" "$root/$point" && mount --make-rslave "$root/$point"; done
  home=/root
  if [ "$role" = user ]; then
    chroot "$root" useradd -m -s /bin/bash builder
    echo 'builder ALL=(ALL) NOPASSWD: ALL' >"$root/etc/sudoers.d/builder"
    home=/home/builder
  fi
  git clone -q . "$root$home/tensorkv"
  [ "$role" = user ] && chroot "$root" chown -R builder:builder "$home/tensorkv"
  enter=(chroot "$root" env -i "HOME=$home" PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8)
  while IFS= read -r name; do enter+=("$name=${!name}"); done < <(compgen -e | grep -iE '^(https?_proxy|no_proxy|pip_cert|pip_index_url|pip_default_timeout|ssl_cert_file|requests_ca_bundle|debian_frontend)$')
  [ "$role" = user ] && enter+=(sudo -E -u builder -H)
  for task in demo test; do
    begin=$SECONDS
    "${enter[@]}" bash -c "cd $home/tensorkv && ./dev $task" >"$logs/$role-$task.log" 2>&1 </dev/null
    code=$?
    [ $code = 0 ] || result=1
    last=$(grep -hE '^[0-9]+ passed, |test accuracy' "$logs/$role-$task.log" | tail -1)
    summary+=("$(printf '%-5s %-5s %5d s  %s  %s' "$role" "$task" $((SECONDS - begin)) "$([ $code = 0 ] && echo passed || echo FAILED)" "$last")")
    echo "fresh: ${summary[-1]}"
  done
done
printf '\n%s\n' "${summary[@]}" | tee "$logs/summary.txt"
exit $result
