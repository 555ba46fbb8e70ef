/** Plants a bug in a copy of the sources and lets the simulation look for it there, in a process of its own. */
import { spawn } from 'node:child_process'
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Bug } from './bugs.ts'

const ROOT = join(import.meta.dirname, '../..')
const PARTS = ['src', 'plugins', 'test/simulation', 'test/servers', 'image', 'package.json']

/** `tried`: how many seeds were told, the one that failed included. */
export type Hunted = { bug: Bug } & (
  | { outcome: 'found'; seed: number; tried: number; sentence: string }
  | { outcome: 'missed' | 'broken'; output: string }
)

/** The file with the bug in it. Throws when `from` is not in the file exactly once. */
export function planted(bug: Bug): string {
  const parts = readFileSync(join(ROOT, bug.file), 'utf8').split(bug.from)
  if (parts.length !== 2) throw new Error(`"${bug.name}": ${bug.file} has its text ${parts.length - 1} times: ${bug.from}`)
  return parts.join(bug.to)
}

/** A copy of the sources, where one bug after the other is looked for. */
type Copy = { hunt(bug: Bug): Promise<Hunted>; remove(): void }

function copySources(server: string | null): Copy {
  const folder = mkdtempSync(join(tmpdir(), 'tollgate-planted-'))
  for (const part of PARTS) cpSync(join(ROOT, part), join(folder, part), { recursive: true })
  symlinkSync(join(ROOT, 'node_modules'), join(folder, 'node_modules'))

  function simulate(args: string[]): Promise<string> {
    return new Promise((resolve, reject) => {
      // What Node compiled for one bug serves the next: only one file is another.
      const env = { ...process.env, NODE_COMPILE_CACHE: join(folder, 'compiled'), ...(server !== null && { MONGODB_URL: server }) }
      const program = ['test/simulation/simulate.ts', '--store', server === null ? 'sqlite' : 'mongodb', ...args]
      const child = spawn(process.execPath, program, { cwd: folder, env, stdio: ['ignore', 'pipe', 'pipe'] })
      let output = ''
      for (const stream of [child.stdout, child.stderr]) stream.setEncoding('utf8').on('data', (text: string) => (output += text))
      child.on('error', reject)
      child.on('close', () => resolve(output))
    })
  }

  return {
    async hunt(bug) {
      writeFileSync(join(folder, bug.file), planted(bug))
      try {
        const output = await simulate(['--story', bug.story, '--seeds', String(bug.within), '--brief'])
        const [, seed, tried, sentence] = /^seed (\d+), number (\d+): (.*)$/m.exec(output) ?? []
        if (sentence !== undefined) return { bug, outcome: 'found', seed: Number(seed), tried: Number(tried), sentence }
        return { bug, outcome: output.includes('Every invariant held') ? 'missed' : 'broken', output }
      } finally {
        cpSync(join(ROOT, bug.file), join(folder, bug.file))
      }
    },
    remove: () => rmSync(folder, { recursive: true, force: true }),
  }
}

/**
 * Looks for these bugs, two at a time, each among the seeds in which it must be found, and tells of each as it is done. `server` as in
 * `Telling`.
 */
export async function huntAll(bugs: readonly Bug[], server: string | null, told: (hunted: Hunted) => void): Promise<void> {
  const waiting = [...bugs]
  async function lane(): Promise<void> {
    const copy = copySources(server)
    try {
      for (let bug = waiting.shift(); bug; bug = waiting.shift()) told(await copy.hunt(bug))
    } finally {
      copy.remove()
    }
  }
  await Promise.all([lane(), lane()])
}
