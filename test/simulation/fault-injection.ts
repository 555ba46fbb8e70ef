/**
 * Fault injection of a seed. Every seed has a fault profile: random faults at given rates. A third of the seeds also target one fault point, and a
 * third arrange a race: a process that reaches one fault point is held until another process has passed a second one, and that one may crash there.
 * Consecutive seeds cover all fault points and all races.
 */
import type { Rng } from './seeded-random.ts'
import type { Fault, Process, Step } from './scheduler.ts'

type Rates = Partial<Record<Fault, number>>
type Range = [min: number, max: number]
type Ranges = { freezeMs: Range; lateMs: Range }

export type DrawnFault = { fault: Fault; ms: number }

export type FaultInjection = {
  /** Description for traces. */
  name: string
  /** Probability that the next event belongs to the same process as the last. */
  sticky: number
  /** Draws the fault of one step. */
  faultFor(step: Step): DrawnFault
  /** Called after a step was performed. Returns the held processes to release. */
  passed(step: Step): Process[]
}

const FAULT_PROFILES: Record<string, Ranges & { rates: Rates }> = {
  minimal: { rates: { slow_reply: 0.05 }, freezeMs: [0, 0], lateMs: [0, 200] },
  mixed: {
    rates: {
      slow_reply: 0.05, lost: 0.01, unknown: 0.015, late: 0.015,
      crash_before: 0.003, crash_after: 0.005, crash_late: 0.003, freeze_before: 0.004, freeze_after: 0.004,
    },
    freezeMs: [500, 90_000],
    lateMs: [10, 20_000],
  },
  crashes: { rates: { crash_before: 0.012, crash_after: 0.02, crash_late: 0.01 }, freezeMs: [0, 0], lateMs: [10, 5_000] },
  freezes: { rates: { slow_reply: 0.1, freeze_before: 0.015, freeze_after: 0.015 }, freezeMs: [5_000, 120_000], lateMs: [10, 5_000] },
  losses: { rates: { slow_reply: 0.1, lost: 0.04, unknown: 0.05, late: 0.06 }, freezeMs: [0, 0], lateMs: [10, 30_000] },
}

/** Fault points of each scenario: labels of steps. `read …` and `replace …` concern a subscription's record. */
export const FAULT_POINTS = {
  media: [
    'createTask', 'read hold', 'replace hold', 'moveTask queued', 'moveTask rejected', 'replace claim', 'moveTask processing',
    'renewTask', 'moveTask settling', 'read close', 'replace close', 'relay', 'replace requeue', 'claimDeliveries',
    'recordAttempt', 'task', 'subscriptionsWith', 'tasksDue', 'archivePeriod', 'files put', 'files stat', 'files remove', 'replace applyPlan',
    'replace removePlan',
  ],
  coding: [
    'replace admit', 'read admit', 'replace extend', 'replace settle', 'read settle', 'replace expire', 'heartbeat', 'forgetInstance',
    'subscriptionsWith', 'replace applyPlan', 'replace removePlan',
  ],
}

/** Races that are likely to reveal bugs; half of the races are drawn from these. */
const KNOWN_RACES: Record<keyof typeof FAULT_POINTS, [here: string, there: string][]> = {
  media: [
    ['replace claim', 'replace requeue'], ['moveTask settling', 'moveTask processing'], ['read hold', 'replace close'],
    ['replace requeue', 'replace claim'], ['relay', 'read close'], ['recordAttempt', 'claimDeliveries'],
    ['replace removePlan', 'replace applyPlan'], ['files put', 'moveTask processing'], ['replace hold', 'moveTask rejected'], ['moveTask queued', 'moveTask rejected'], ['renewTask', 'moveTask queued'],
  ],
  coding: [
    ['replace admit', 'replace expire'], ['read settle', 'replace expire'], ['heartbeat', 'replace expire'], ['replace expire', 'heartbeat'],
    ['subscriptionsWith', 'replace settle'], ['replace applyPlan', 'replace removePlan'],
  ],
}

const TARGETED: Fault[] = ['crash_after', 'freeze_before', 'unknown', 'crash_before', 'freeze_after', 'late', 'crash_late']
const TORN_FAULTS: Fault[] = ['torn', 'crash_torn']
const TARGETED_RANGES: Ranges = { freezeMs: [20_000, 150_000], lateMs: [100, 60_000] }
const MAX_HELD_MS = 150_000
/** Longer than every lease and abandoned claim. */
const EXPIRED_MS = 65_000
const WRITE_FAULTS = new Set<Fault>(['unknown', 'late', 'crash_late', 'torn', 'crash_torn'])
/** Additional rates where a verb is several writes. */
const TORN: Rates = { torn: 0.01, crash_torn: 0.005 }

type Directed = { pair: [here: string, there: string]; hold: Fault; pass: Fault; atLeastMs: number }

/** One of five races of media tasks: a worker is frozen between its claim and the start of the task, until a sweep has queued that again. By chance it takes hundreds of seeds. */
const DIRECTED_RACE: Directed = { pair: ['moveTask processing', 'replace requeue'], hold: 'freeze_before', pass: 'freeze_after', atLeastMs: 59_000 }

/** Enumerates every pair of two lists once, in a scattered order, as `index` rises. */
function pairAt<A, B>(index: number, first: readonly A[], second: readonly B[]): [A, B] {
  const at = (index * 157) % (first.length * second.length)
  return [first[at % first.length]!, second[Math.floor(at / first.length)]!]
}

/** `tears`: whether verbs of the store can be torn between two writes. */
export function openFaultInjection(
  seed: number,
  scenario: keyof typeof FAULT_POINTS,
  rng: Rng,
  { now, tears }: { now: () => number; tears: boolean },
): FaultInjection {
  const points = FAULT_POINTS[scenario]
  const index = Math.floor(seed / 3)
  const kind = (['general', 'targeted', 'race'] as const)[seed % 3] ?? 'general'
  const faultProfile = rng.weighted({ minimal: kind === 'general' ? 1 : 0, mixed: 6, crashes: 3, freezes: 3, losses: 3 })
  const { rates: known, ...range } = FAULT_PROFILES[faultProfile] ?? FAULT_PROFILES['mixed']!
  const rates = tears && faultProfile !== 'minimal' ? { ...known, ...TORN } : known
  const sticky = rng.pick([0, 0.3, 0.6, 0.85])
  const general = (step: Step) => drawFault(step, rates, range, rng)
  if (kind === 'general') return { name: faultProfile, sticky, faultFor: general, passed: () => [] }

  const light = Object.fromEntries(Object.entries(rates).map(([fault, rate]) => [fault, rate / 4]))
  const background = (step: Step) => drawFault(step, light, range, rng)
  if (kind === 'targeted') {
    const [point, fault] = pairAt(index, points, tears ? [...TARGETED, ...TORN_FAULTS] : TARGETED)
    const targeted: Rates = { [fault]: rng.pick([0.1, 0.3]) }
    const faultFor = (step: Step) => (step.label.startsWith(point) ? drawFault(step, targeted, TARGETED_RANGES, rng) : background(step))
    return { name: `${faultProfile}, ${fault} at ${point}`, sticky, faultFor, passed: () => [] }
  }
  const isDirected = scenario === 'media' && index % 5 === 0
  const pair = isDirected ? DIRECTED_RACE.pair : rng.chance(0.5) ? rng.pick(KNOWN_RACES[scenario]) : pairAt(index, points, points)
  const { name, ...injection } = race(pair, background, rng, now, isDirected ? DIRECTED_RACE : {})
  return { name: `${faultProfile}, ${name}`, sticky, ...injection }
}

/**
 * A race: a process that reaches `here` is crashed, or held until another process has passed `there`; a fault may be injected into the other process
 * too. In half of the races, the process is held until its leases and claims have expired.
 */
function race([here, there]: [string, string], background: FaultInjection['faultFor'], rng: Rng, now: () => number, directed: Partial<Directed>): Omit<FaultInjection, 'sticky'> {
  const heldSince = new Map<Process, number>()
  const holdFault = directed.hold ?? rng.pick<Fault>(['freeze_before', 'freeze_after', 'freeze_before', 'freeze_after', 'crash_before', 'crash_after'])
  const passFault = directed.pass ?? rng.pick<Fault>(['none', 'crash_after', 'unknown', 'freeze_after'])
  const atLeastMs = directed.atLeastMs ?? rng.pick([0, EXPIRED_MS])
  const heldProcesses = ({ actor: { process } }: Step) =>
    [...heldSince].filter(([held, since]) => held !== process && now() - since >= atLeastMs).map(([held]) => held)

  function faultFor(step: Step): DrawnFault {
    if (step.label.startsWith(there) && heldProcesses(step).length > 0 && rng.chance(0.6)) return { fault: passFault, ms: rng.whole(5_000, 40_000) }
    if (!step.label.startsWith(here) || heldSince.has(step.actor.process) || !rng.chance(0.4)) return background(step)
    heldSince.set(step.actor.process, now())
    return { fault: holdFault, ms: MAX_HELD_MS }
  }

  function passed(step: Step): Process[] {
    if (!step.label.startsWith(there)) return []
    const released = heldProcesses(step)
    for (const process of released) heldSince.delete(process)
    return released
  }

  return { name: `${holdFault} at ${here} until another has passed ${there}${atLeastMs > 0 ? ' late' : ''} (${passFault})`, faultFor, passed }
}

/** Draws a fault by its rates. A read can be lost, but not be late or torn. */
function drawFault(step: Step, rates: Rates, { freezeMs, lateMs }: Ranges, rng: Rng): DrawnFault {
  let draw = rng.random()
  for (const [name, rate] of Object.entries(rates) as [Fault, number][]) {
    draw -= rate
    if (draw >= 0) continue
    const fault = !step.writes && WRITE_FAULTS.has(name) ? 'lost' : name
    if (fault === 'slow_reply') return { fault, ms: rng.whole(1, 400) }
    return { fault, ms: fault.startsWith('freeze') ? rng.whole(...freezeMs) : rng.whole(...lateMs) }
  }
  return { fault: 'none', ms: 0 }
}
