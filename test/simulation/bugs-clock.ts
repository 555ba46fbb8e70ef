/** Bugs about wrong clocks: one of seven seeds has those (`clocks.ts`). */
import type { Bug } from './bugs.ts'

type Listed = Omit<Bug, 'scenario'>

export const CLOCK_BUGS: Listed[] = [
  {
    name: 'a process with a wrong clock writes',
    file: 'src/bootstrap/store-clock.ts', within: 60,
    from: 'isOff() ? Promise.reject(refusal()) : write(...args)',
    to: 'write(...args)',
  },
  {
    name: 'a process takes its time from its wall clock',
    file: 'src/bootstrap/store-clock.ts', within: 60,
    from: 'const now = () => Math.floor(monotonic() + measured.offsetMs)',
    to: 'const now = () => Math.floor(wall() + 0 * measured.offsetMs)',
  },
  {
    name: 'a record that lies ahead is not healed',
    file: 'src/domain/subscription/current-record.ts', within: 100,
    from: 'if (now !== null && record) this.#replace(heal(record, now))',
    to: '',
  },
  {
    name: 'a record that lies days ahead is not healed',
    file: 'src/domain/subscription/clock-healing.ts', within: 200,
    from: 'return ahead > MAX_SKEW_MS ? ahead : 0',
    to: 'return ahead > MAX_SKEW_MS && ahead < 86_400_000 ? ahead : 0',
  },
  {
    name: 'healing leaves a task waiting for a time ahead',
    file: 'src/domain/subscription/clock-healing.ts', within: 600,
    from: 'readyAt: shift(hold.readyAt)',
    to: 'readyAt: hold.readyAt',
  },
  {
    name: 'healing leaves a run that began ahead',
    file: 'src/domain/subscription/clock-healing.ts', within: 600,
    from: 'at: shift(hold.run.at), servedBefore',
    to: 'at: hold.run.at, servedBefore',
  },
  {
    name: 'a task that is ready at once has a time',
    file: 'src/domain/subscription/task-queue.ts', within: 20,
    from: 'readyAt: AT_ONCE, at: now',
    to: 'readyAt: now, at: now',
  },
]

export const CODING_CLOCK_BUGS: Listed[] = [
  {
    name: 'healing leaves the rate limit ahead',
    file: 'src/domain/subscription/clock-healing.ts', within: 100,
    from: 'rate: { tat: shifted(record.rate.tat, record, now) }',
    to: 'rate: record.rate',
  },
  {
    name: 'healing begins a new week',
    file: 'src/domain/subscription/clock-healing.ts', within: 200,
    from: 'weeks === 0 ? weekly.used : Math.max(weekly.used, ofDays)',
    to: 'weeks === 0 ? weekly.used : Math.min(weekly.used, ofDays)',
  },
  {
    name: 'healing leaves the session ahead',
    file: 'src/domain/subscription/clock-healing.ts', within: 100,
    from: 'const start = session && shift(session.start)',
    to: 'const start = session && session.start',
  },
]
