/**
 * What goes wrong in a seed, and how often. Every seed has a weather. A third of them also aim at one moment of a story, and a third
 * arrange a meeting: whoever comes to one moment is held up until somebody else has passed another, and that one may crash there. Seeds in
 * a row walk through all moments and all meetings.
 */
import type { Dice } from './seeded-random.ts'
import type { Fate, Process, Step } from './scheduler.ts'

type Rates = Partial<Record<Fate, number>>
type Range = [least: number, most: number]
type Ranges = { freezeMs: Range; lateMs: Range }

export type Trouble = {
  /** In words, for whoever reads a trace. */
  name: string
  /** How likely the next event is one of the same process as the last. */
  sticky: number
  /** Throws for one step. */
  fateOf(step: Step): { fate: Fate; ms: number }
  /** A step was performed. Answers who need not wait any longer. */
  passed(step: Step): Process[]
}

const WEATHERS: Record<string, Ranges & { rates: Rates }> = {
  fine: { rates: { slow_reply: 0.05 }, freezeMs: [0, 0], lateMs: [0, 200] },
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
  loses: { rates: { slow_reply: 0.1, lost: 0.04, unknown: 0.05, late: 0.06 }, freezeMs: [0, 0], lateMs: [10, 30_000] },
}

/** The moments of each story; `read …` and `replace …` are those of a subscription's record. */
export const MOMENTS = {
  media: [
    'createTask', 'read hold', 'replace hold', 'moveTask queued', 'moveTask rejected', 'replace claim', 'moveTask processing',
    'renewTask', 'moveTask settling', 'read close', 'replace close', 'moveTask final', 'relay', 'replace requeue', 'claimDeliveries',
    'recordAttempt', 'task', 'subscriptionsWith', 'tasksDue', 'archivePeriod',
  ],
  coding: [
    'replace admit', 'read admit', 'replace extend', 'replace settle', 'read settle', 'replace expire', 'heartbeat', 'forgetInstance',
    'subscriptionsWith',
  ],
}

/** Meetings that are known to be dangerous; every other meeting is one of these. */
const DANGEROUS: Record<keyof typeof MOMENTS, [here: string, there: string][]> = {
  media: [
    ['replace claim', 'replace requeue'], ['moveTask settling', 'moveTask processing'], ['read hold', 'replace close'],
    ['replace requeue', 'replace claim'], ['moveTask final', 'read close'], ['recordAttempt', 'claimDeliveries'],
    ['moveTask queued', 'moveTask rejected'], ['read hold', 'moveTask queued'], ['renewTask', 'moveTask queued'],
  ],
  coding: [
    ['replace admit', 'replace expire'], ['read settle', 'replace expire'], ['heartbeat', 'replace expire'], ['replace expire', 'heartbeat'],
    ['subscriptionsWith', 'replace settle'],
  ],
}

const AIMED: Fate[] = ['crash_after', 'freeze_before', 'unknown', 'crash_before', 'freeze_after', 'late', 'crash_late']
const TORN_FATES: Fate[] = ['torn', 'crash_torn']
const AIMED_RANGE: Ranges = { freezeMs: [20_000, 150_000], lateMs: [100, 60_000] }
const LONGEST_HELD_MS = 150_000
/** By then a claim that came to nothing, and every lease, has been given up. */
const LATE_MS = 65_000
const OF_WRITES = new Set<Fate>(['unknown', 'late', 'crash_late', 'torn', 'crash_torn'])
/** Where a verb is several writes. */
const TORN: Rates = { torn: 0.01, crash_torn: 0.005 }

/** Visits every pair of two lists once, in an order without pattern, as `turn` rises. */
function pairAt<A, B>(turn: number, first: readonly A[], second: readonly B[]): [A, B] {
  const at = (turn * 157) % (first.length * second.length)
  return [first[at % first.length]!, second[Math.floor(at / first.length)]!]
}

/** `tears`: whether the store's verbs can be torn between two writes. */
export function openFaults(
  seed: number,
  story: keyof typeof MOMENTS,
  dice: Dice,
  { now, tears }: { now: () => number; tears: boolean },
): Trouble {
  const moments = MOMENTS[story]
  const turn = Math.floor(seed / 3)
  const kind = (['general', 'aimed', 'meeting'] as const)[seed % 3] ?? 'general'
  const weather = dice.weighted({ fine: kind === 'general' ? 1 : 0, mixed: 6, crashes: 3, freezes: 3, loses: 3 })
  const { rates: known, ...range } = WEATHERS[weather] ?? WEATHERS['mixed']!
  const rates = tears && weather !== 'fine' ? { ...known, ...TORN } : known
  const sticky = dice.pick([0, 0.3, 0.6, 0.85])
  const general = (step: Step) => thrown(step, rates, range, dice)
  if (kind === 'general') return { name: weather, sticky, fateOf: general, passed: () => [] }

  const light = Object.fromEntries(Object.entries(rates).map(([fate, rate]) => [fate, rate / 4]))
  const background = (step: Step) => thrown(step, light, range, dice)
  if (kind === 'aimed') {
    const [moment, fate] = pairAt(turn, moments, tears ? [...AIMED, ...TORN_FATES] : AIMED)
    const aimed: Rates = { [fate]: dice.pick([0.1, 0.3]) }
    const fateOf = (step: Step) => (step.label.startsWith(moment) ? thrown(step, aimed, AIMED_RANGE, dice) : background(step))
    return { name: `${weather}, ${fate} at ${moment}`, sticky, fateOf, passed: () => [] }
  }
  const pair = dice.chance(0.5) ? dice.pick(DANGEROUS[story]) : pairAt(turn, moments, moments)
  const { name, ...met } = meeting(pair, background, dice, now)
  return { name: `${weather}, ${name}`, sticky, ...met }
}

/**
 * Who comes to `here` is held up until another process has passed `there`, or crashes; and what becomes of that other one is thrown as
 * well. Some meetings are late ones: leases and claims have been given up by then.
 */
function meeting([here, there]: [string, string], background: Trouble['fateOf'], dice: Dice, now: () => number): Omit<Trouble, 'sticky'> {
  const heldSince = new Map<Process, number>()
  const side = dice.pick<Fate>(['freeze_before', 'freeze_after', 'freeze_before', 'freeze_after', 'crash_before', 'crash_after'])
  const then = dice.pick<Fate>(['ok', 'crash_after', 'unknown', 'freeze_after'])
  const atLeastMs = dice.pick([0, LATE_MS])
  const met = ({ actor: { process } }: Step) =>
    [...heldSince].filter(([held, since]) => held !== process && now() - since >= atLeastMs).map(([held]) => held)

  function fateOf(step: Step): { fate: Fate; ms: number } {
    if (step.label.startsWith(there) && met(step).length > 0 && dice.chance(0.6)) return { fate: then, ms: dice.whole(5_000, 40_000) }
    if (!step.label.startsWith(here) || heldSince.has(step.actor.process) || !dice.chance(0.4)) return background(step)
    heldSince.set(step.actor.process, now())
    return { fate: side, ms: LONGEST_HELD_MS }
  }

  function passed(step: Step): Process[] {
    if (!step.label.startsWith(there)) return []
    const free = met(step)
    for (const process of free) heldSince.delete(process)
    return free
  }

  return { name: `${side} at ${here} until another has passed ${there}${atLeastMs > 0 ? ' late' : ''} (${then})`, fateOf, passed }
}

/** What is read can be lost, but not land late. */
function thrown(step: Step, rates: Rates, { freezeMs, lateMs }: Ranges, dice: Dice): { fate: Fate; ms: number } {
  let left = dice.random()
  for (const [name, rate] of Object.entries(rates) as [Fate, number][]) {
    left -= rate
    if (left >= 0) continue
    const fate = !step.writes && OF_WRITES.has(name) ? 'lost' : name
    if (fate === 'slow_reply') return { fate, ms: dice.whole(1, 400) }
    return { fate, ms: fate.startsWith('freeze') ? dice.whole(...freezeMs) : dice.whole(...lateMs) }
  }
  return { fate: 'ok', ms: 0 }
}
