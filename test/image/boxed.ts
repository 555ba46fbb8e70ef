/**
 * Starts a process of an unpacked image as a container runtime would: with the image's folder as its root, read-only, as the image's user, with /data,
 * /tmp and /dev/shm writable. That needs root; without root, the image's own Node and program run in place.
 */
import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Role } from '../../src/config/needed-backends.ts'
import { readDockerfile } from '../../image/dockerfile.ts'
import { REPOSITORY, startProcess, type Process } from '../flows/program.ts'

const MOUNTS = `
root=$1 data=$2 workdir=$3 user=$4 group=$5 && shift 5
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --bind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/dev/shm"
mount -t tmpfs tmpfs "$root/tmp"
mount --bind "$data" "$root/data"
mount -o remount,bind,ro "$root"
exec unshare --root "$root" --wd "$workdir" --setgid "$group" --setuid "$user" -- "$@"`

export const canBox = process.getuid?.() === 0

/** `folder` is the image's /data; settings that name it are changed to that. `owner` is another user than the image's, by number. Listens on loopback only. */
export function startBoxed({ image, folder, role, env = {}, owner }: { image: string; folder: string; role: Role; env?: Record<string, string>; owner?: string }): Promise<Process> {
  const recipe = readDockerfile(readFileSync(join(REPOSITORY, 'Dockerfile'), 'utf8'))
  const [user = '', group = ''] = (owner ?? recipe.user).split(':')
  const place = canBox ? '/data' : folder
  const settings = { RESOURCES_URL: `files:${place}/plans`, ...env, HOST: '127.0.0.1', OPS_HOST: '127.0.0.1', DATA_DIR: `${place}/data` }
  const inside = Object.fromEntries(Object.entries(settings).map(([name, value]) => [name, value.replaceAll(folder, place)]))
  if (!canBox) {
    const argv: [string, ...string[]] = [join(image, 'usr/local/bin/node'), join(image, recipe.workdir, 'bin/tollgate.mjs')]
    return startProcess({ folder, role, argv, env: { ...recipe.env, ...inside } })
  }
  execFileSync('chown', ['-R', `${user}:${group}`, folder])
  const alone = ['--mount', '--propagation', 'private', 'sh', '-euc', MOUNTS, 'sh', image, folder, recipe.workdir, user, group]
  // For the shell that mounts, and for the image's Node.
  const path = `/usr/local/bin:${process.env['PATH'] ?? ''}`
  return startProcess({ folder, role, argv: ['unshare', ...alone, ...recipe.entrypoint], env: { ...recipe.env, PATH: path, ...inside } })
}
