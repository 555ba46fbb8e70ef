/**
 * The thread of planted-bugs.ts. For each bug it loads the simulation and the sources anew, under addresses that end with the number of the bug, and with the bug
 * in its file. Packages are loaded once, and types are stripped once: a process for each bug would spend more on both than on its seeds.
 */
import { readFileSync } from 'node:fs'
import { registerHooks, stripTypeScriptTypes } from 'node:module'
import { join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { parentPort, workerData } from 'node:worker_threads'
import type { Bug } from './bugs.ts'
import { planted, ROOT, type Detection } from './planted-bugs.ts'
import type * as Runs from './run-seed.ts'

const OURS = new RegExp(`^${pathToFileURL(ROOT).href}/(?!node_modules/).*\\.ts$`)
const stripped = new Map<string, string>()
let present: Bug | null = null
let count = 0

registerHooks({
  resolve(specifier, context, next) {
    const found = next(specifier, context)
    const { search } = new URL(context.parentURL ?? 'file:')
    return OURS.test(found.url) ? { ...found, url: `${found.url}${search}` } : found
  },
  load(url, context, next) {
    if (new URL(url).search === '') return next(url, context)
    const path = fileURLToPath(url)
    const source =
      present !== null && path === join(ROOT, present.file)
        ? stripTypeScriptTypes(planted(present))
        : stripped.getOrInsertComputed(path, () => stripTypeScriptTypes(readFileSync(path, 'utf8')))
    return { format: 'module', source, shortCircuit: true }
  },
})

async function detect(bug: Bug, server: string | null): Promise<Detection> {
  present = bug
  const { scenarioOf, runSeed }: typeof Runs = await import(`./run-seed.ts?${++count}`)
  for (let seed = 1, tried = 1; tried <= bug.within; seed++) {
    if (scenarioOf(seed) !== bug.scenario) continue
    const [sentence] = (await runSeed(seed, { server })).violations
    if (sentence !== undefined) return { bug, outcome: 'found', seed, tried, sentence }
    tried++
  }
  return { bug, outcome: 'missed', output: `${bug.within} seeds` }
}

parentPort?.on('message', async (bug: Bug) => {
  const detection = await detect(bug, workerData as string | null).catch((error: Error): Detection => ({ bug, outcome: 'broken', output: String(error.stack) }))
  parentPort?.postMessage(detection)
})
