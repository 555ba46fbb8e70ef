/** The AI Room in a real browser, over a program that runs with the engines of a fresh checkout. */
import { spawnSync } from 'node:child_process'
import t from 'tap'
import { KINDS } from '../../src/domain/media-generations.ts'
import { OPERATIONS } from '../../src/domain/media-operations.ts'
import { need } from '../servers/client.ts'
import { openDashboard } from './dashboard.ts'
import { editTests } from './room-edits.ts'
import { filmTests } from './room-films.ts'
import { makeTests } from './room-makes.ts'
import { optionTests } from './room-options.ts'
import { showTests } from './room-shows.ts'

// By a name of its own, since tsc must not need the package.
const name = 'sharp'
const hasSharp = await import(name).then(() => true, () => false)
const hasFfmpeg = spawnSync('ffmpeg', ['-version']).status === 0

/** No worker makes music: such a task waits for as long as a test looks at it. */
const OFFERED: string[] = [...KINDS, ...OPERATIONS]

t.test('the AI Room in a browser', async (t) => {
  const executable = need(t, 'chromium')
  if (executable === null) return
  const dashboard = await openDashboard(t, executable, { WORKER_KINDS: OFFERED.filter((kind) => kind !== 'music').join(',') })
  await t.test('making', (t) => makeTests(t, dashboard))
  await t.test('options', (t) => optionTests(t, dashboard))
  await t.test('showing', (t) => showTests(t, dashboard, { hasSharp }))
  await t.test('editing', { skip: hasSharp ? false : 'sharp is not installed' }, (t) => editTests(t, dashboard))
  await t.test('films', { skip: hasFfmpeg ? false : 'ffmpeg is not installed' }, (t) => filmTests(t, dashboard))
})
