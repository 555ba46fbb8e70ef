/** Runs the operator's commands (`docs/operations.md`, "Commands"). They print sentences or JSON, and change nothing without `--yes`. */
import { randomBytes } from 'node:crypto'
import { realpath } from 'node:fs/promises'
import { openFiles } from '../backends/files/files.ts'
import { openStore, type Store } from '../backends/store/store.ts'
import type { Config } from '../config/config.ts'
import { isDistributed } from '../config/startup-checks.ts'
import { deriveKeys, formatDerivedKeys } from '../domain/derived-keys.ts'
import { MAX_SKEW_MS } from '../domain/subscription/clock-healing.ts'
import { checkBackup } from '../maintenance/check-backup.ts'
import { purge, purgeable } from '../maintenance/purge.ts'
import { reseal } from '../maintenance/reseal.ts'
import { requeueTask, stuckTasks } from '../maintenance/stuck-tasks.ts'
import { traceOf } from '../maintenance/trace.ts'
import { usageOf } from '../maintenance/usage.ts'
import { exportUsage } from '../maintenance/usage-export.ts'
import { readCommandLine, type CommandLine } from './command-line.ts'
import { backupText, purgeText, requeueText, resealText, restoredText, storyText, stuckText, usageText } from './command-output.ts'
import { credentialsOf } from './open-backends.ts'
import { lock } from './process-lock.ts'
import { readSealingKeys } from './sealing-keys.ts'

/** What a command prints beside what it has written already, with a `note` for the error output, and its exit code: 1 when it found something wrong or did not do what it was told. */
export type Ran = { output: string; note?: string; exitCode: 0 | 1 }

const NO_USAGE = 'USAGE_DAYS is 0: no usage records are made. Those of an earlier setting are exported.\n'

type Result = { facts: unknown; text: string; isFine?: boolean }

/** Runs a command on the store of the settings. What is long is given to `print` in parts.
 * Throws a `ConfigError` for a wrong command line, and `Unavailable` when the store does not answer. */
export async function runCommand(config: Config, args: string[], wall: () => number, print: (part: string) => Promise<void>): Promise<Ran> {
  const line = readCommandLine(args)
  if (line.command === 'derive-keys') {
    const text = formatDerivedKeys(deriveKeys(await readSealingKeys(config.SEALING_KEY_FILE)))
    return { output: line.json ? `${JSON.stringify({ keys: text.trimEnd().split('\n') })}\n` : text, exitCode: 0 }
  }
  const write = 'write' in line && line.write
  const held = write && !isDistributed(config) ? await lockSqlite(config) : null
  try {
    const store = await openStore(config.STORE_URL, { readOnly: !write })
    try {
      const now = await store.clock()
      if (write && Math.abs(now - wall()) > MAX_SKEW_MS)
        throw new Error(
          "The clock of this machine differs from the store's by more than 5 s, so that nothing was changed: synchronize both by NTP.",
        )
      if (line.command === 'usage export') {
        for await (const part of exportUsage(store, { ...line, range: line })) await print(part)
        return { output: '', exitCode: 0, ...(config.USAGE_MS === 0 && { note: NO_USAGE }) }
      }
      const { facts, text, isFine = true } = await resultOf(line, config, store, now)
      return { output: line.json ? `${JSON.stringify(facts)}\n` : text, exitCode: isFine ? 0 : 1 }
    } finally {
      await store.close()
    }
  } finally {
    await held?.close()
  }
}

async function resultOf(
  line: Exclude<CommandLine, { command: 'derive-keys' | 'usage export' }>,
  config: Config,
  store: Store,
  now: number,
): Promise<Result> {
  switch (line.command) {
    case 'usage': {
      const plans = await Array.fromAsync(usageOf(store, now, line.tenant))
      return { facts: plans, text: usageText(plans, line.tenant) }
    }
    case 'tasks stuck': {
      const tasks = await stuckTasks(store, now, line.olderThanMs)
      return { facts: tasks, text: stuckText(tasks) }
    }
    case 'tasks requeue': {
      if (!line.write) {
        const state = (await store.task(line.tenant, line.id))?.state ?? null
        return {
          facts: { outcome: 'not_changed', state },
          text: `Task ${line.id} is ${state ?? 'not there'}. Nothing was changed: add --yes.\n`,
          isFine: state !== null,
        }
      }
      const requeued = await requeueTask({ store, clock: () => now, publish: () => {} }, line.tenant, line.id)
      return { facts: requeued, text: requeueText(line.id, requeued), isFine: requeued.outcome === 'queued' }
    }
    case 'trace': {
      const story = await traceOf(store, line.id, line.sinceMs === null ? null : now - line.sinceMs)
      return { facts: story, text: storyText(line.id, story), isFine: (story.tasks[0] ?? story.reservation ?? story.request) !== null }
    }
    case 'reseal': {
      const counts = await reseal(store, await readSealingKeys(config.SEALING_KEY_FILE), line.write ? () => randomBytes(12) : null)
      return { facts: counts, text: resealText(counts, line.write), isFine: counts.unopened.length === 0 }
    }
    case 'purge': {
      const before = {
        tasks: line.tasksMs === null ? null : now - line.tasksMs,
        events: line.eventsMs === null ? null : now - line.eventsMs,
      }
      const counts = await (line.write ? purge : purgeable)(store, before)
      return { facts: { ...counts, removed: line.write }, text: purgeText(counts, line.write) }
    }
    case 'backup check':
      return checked(config, store, now)
    case 'backup restored':
      // More than the number of events that were logged, before the restore or after it (decision 0025).
      if (line.write) await store.raiseEventFloor(now)
      return { facts: { eventsAfter: line.write ? now : null }, text: restoredText(line.write) }
  }
}

async function checked(config: Config, store: Store, now: number): Promise<Result> {
  const files = await openFiles(config.FILES_URL, { storeUrl: config.STORE_URL, credentials: credentialsOf(config), readOnly: true })
  try {
    const sealing = await readSealingKeys(config.SEALING_KEY_FILE)
    const found = await checkBackup(store, files, sealing, { now, keptSince: now - config.TASK_MS, eventsKeptSince: now - config.EVENT_MS })
    return {
      facts: found,
      text: backupText(found),
      isFine: found.violations.length === 0 && found.keys.unopened.length === 0 && found.results.missing.length === 0,
    }
  } finally {
    await files.close()
  }
}

/** A running program would not see what another process changes in SQLite. */
async function lockSqlite({ STORE_URL }: Config): Promise<{ close(): Promise<void> }> {
  const path = STORE_URL.slice('sqlite:'.length)
  const file = await realpath(path).catch(() => {
    throw new Error(`There is no store at ${path}.`)
  })
  return lock(`${file}.lock`, 'STORE_URL', STORE_URL)
}
