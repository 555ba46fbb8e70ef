/** Mutation testing of the simulation: plants a bug in a copy of the sources and runs the simulation there, in a separate process. */
import { spawn } from 'node:child_process'
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Bug } from './bugs.ts'

const ROOT = join(import.meta.dirname, '../..')
const PARTS = ['src', 'plugins', 'test/simulation', 'test/servers', 'image', 'package.json']

/** `tried`: number of seeds run, including the one that failed. */
export type Detection = { bug: Bug } & (
  | { outcome: 'found'; seed: number; tried: number; sentence: string }
  | { outcome: 'missed' | 'broken'; output: string }
)

/** The text of the file with the bug. Throws when `from`, however it is broken into lines, is not in the file exactly once. */
export function planted(bug: Bug): string {
  const letters = [...bug.from.replace(/\s+/g, '')].map((letter) => letter.replace(/\W/, '\\$&'))
  const parts = readFileSync(join(ROOT, bug.file), 'utf8').split(new RegExp(letters.join('\\s*')))
  if (parts.length !== 2) throw new Error(`"${bug.name}": ${bug.file} contains the text ${parts.length - 1} times: ${bug.from}`)
  return parts.join(bug.to)
}

/** A copy of the sources, in which one bug after the other is planted. */
type Copy = { detect(bug: Bug): Promise<Detection>; remove(): void }

function copySources(server: string | null): Copy {
  const folder = mkdtempSync(join(tmpdir(), 'tollgate-planted-'))
  for (const part of PARTS) cpSync(join(ROOT, part), join(folder, part), { recursive: true })
  symlinkSync(join(ROOT, 'node_modules'), join(folder, 'node_modules'))

  function simulate(args: string[]): Promise<string> {
    return new Promise((resolve, reject) => {
      // The compile cache is shared by all bugs: they differ in one file.
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
    async detect(bug) {
      writeFileSync(join(folder, bug.file), planted(bug))
      try {
        const output = await simulate(['--scenario', bug.scenario, '--seeds', String(bug.within), '--brief'])
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
 * Runs each bug with the seeds in which it must be found, two bugs at a time, and calls `detected` after each. `server` as in `SeedOptions`.
 */
export async function detectBugs(bugs: readonly Bug[], server: string | null, detected: (detection: Detection) => void): Promise<void> {
  const remaining = [...bugs]
  async function worker(): Promise<void> {
    const copy = copySources(server)
    try {
      for (let bug = remaining.shift(); bug; bug = remaining.shift()) detected(await copy.detect(bug))
    } finally {
      copy.remove()
    }
  }
  await Promise.all([worker(), worker()])
}
