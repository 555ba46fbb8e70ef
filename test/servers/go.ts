import type { Entry } from './cache.ts'
import { command } from './command.ts'

/** Runs `go` with common settings: no C compiler, no toolchain other than the machine's, no user settings. */
export function go(args: string[], cwd: string, env: Record<string, string> = {}): Promise<string> {
  return command('go', args, cwd, { GOTOOLCHAIN: 'local', GOFLAGS: '', GOWORK: 'off', CGO_ENABLED: '0', ...env })
}

/** The missing prerequisite of a Go program, like `Entry.lacks`. */
export async function lacksGo(): Promise<string | null> {
  const message = 'needs Go 1.26 or newer on the PATH'
  const version = await command('go', ['env', 'GOVERSION']).catch(() => '')
  const [, major, minor] = /^go(\d+)\.(\d+)/.exec(version) ?? []
  return Number(major) > 1 || (Number(major) === 1 && Number(minor) >= 26) ? null : message
}

/** An entry that is one program of a Go module, built from its source at that version. `packagePath` is the program's import path. */
export function goProgram(name: string, packagePath: string, version: string): Entry {
  return {
    name,
    version,
    program: packagePath.split('/').at(-1) ?? name,
    lacks: lacksGo,
    async install(folder) {
      await go(['install', '-trimpath', '-ldflags=-s -w', `${packagePath}@v${version}`], folder, { GOBIN: folder })
    },
  }
}
