/** Plants a bug in a copy of the sources and lets the simulation look for it there, in a process of its own. */
import { spawn } from 'node:child_process'
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { BUGS, type Bug } from './bugs.ts'

const ROOT = join(import.meta.dirname, '../..')

/** `tried`: how many seeds were told, the one that failed included. */
export type Hunted = { bug: Bug; outcome: 'found'; seed: number; tried: number; sentence: string } | { bug: Bug; outcome: 'missed' | 'broken'; output: string }

/** Changes the text once. Throws when `from` is not in the file exactly once. */
export function planted(bug: Bug, root = ROOT): string {
  const parts = readFileSync(join(root, bug.file), 'utf8').split(bug.from)
  if (parts.length !== 2) throw new Error(`"${bug.name}": ${bug.file} has its text ${parts.length - 1} times: ${bug.from}`)
  return parts.join(bug.to)
}

/** Looks for one bug among the seeds in which it must be found. */
export async function hunt(bug: Bug, within = bug.within): Promise<Hunted> {
  const copy = mkdtempSync(join(tmpdir(), 'tollgate-planted-'))
  try {
    for (const part of ['src', 'plugins', 'test/simulation', 'package.json']) cpSync(join(ROOT, part), join(copy, part), { recursive: true })
    symlinkSync(join(ROOT, 'node_modules'), join(copy, 'node_modules'))
    writeFileSync(join(copy, bug.file), planted(bug))
    const output = await run(copy, ['--story', bug.story, '--seeds', String(within), '--brief'])
    const [, seed, tried, sentence] = /^seed (\d+), the (\d+)\w+: (.*)$/m.exec(output) ?? []
    if (sentence !== undefined) return { bug, outcome: 'found', seed: Number(seed), tried: Number(tried), sentence }
    return { bug, outcome: output.includes('held in') ? 'missed' : 'broken', output }
  } finally {
    rmSync(copy, { recursive: true, force: true })
  }
}

function run(folder: string, args: string[]): Promise<string> {
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, ['test/simulation/simulate.ts', ...args], { cwd: folder, stdio: ['ignore', 'pipe', 'pipe'] })
    let output = ''
    for (const stream of [child.stdout, child.stderr]) stream.setEncoding('utf8').on('data', (text: string) => (output += text))
    child.on('error', reject)
    child.on('close', () => resolve(output))
  })
}

/** Looks for all of them, two at a time, and tells of each as it is done. */
export async function huntAll(told: (hunted: Hunted) => void, factor = 1): Promise<void> {
  const waiting = [...BUGS]
  const one = async () => {
    for (let bug = waiting.shift(); bug; bug = waiting.shift()) told(await hunt(bug, bug.within * factor))
  }
  await Promise.all([one(), one()])
}
