/** One seed from beginning to end: prepare, tell its story with all trouble, come to rest, and hold everything against the invariants. */
import { verifyStore } from '../../src/verify/verify.ts'
import { codingStory } from './coding/story.ts'
import { mediaStory } from './media/story.ts'
import { openReal } from './real-store.ts'
import { openWorld, type Machine, type World } from './world.ts'

export type Told = {
  seed: number
  story: 'media' | 'coding'
  weather: string
  steps: number
  tasks: number
  requests: number
  /** Empty when every invariant held after every step and at rest. */
  violations: string[]
  /** What happened, a line each; empty unless it was asked for. */
  trace: string[]
}

/** A story that does not end by then is one that does not end. */
const MOST_STEPS = 20_000
const HOUR_MS = 3_600_000

export function storyOf(seed: number): Told['story'] {
  return seed % 4 === 0 ? 'coding' : 'media'
}

export type Telling = {
  traced?: boolean
  /** The URL of a MongoDB server without a database's name; the store is SQLite without one. */
  server?: string | null
}

/** Tells the story of a seed. The same seed tells the same story over the same kind of store, step by step. */
export async function tell(seed: number, { traced = false, server = null }: Telling = {}): Promise<Told> {
  const story = storyOf(seed)
  const { start, prepare, begin, rest } = story === 'coding' ? codingStory : mediaStory
  const real = await openReal(server)
  const lines: string[] = []
  try {
    await prepare(real.handles[0].store)
    const world = openWorld({ seed, start, story, real, trace: traced ? (line) => void lines.push(line) : null })
    begin(world)
    if (world.dice.chance(0.2)) world.boot('operator', (machine) => machine.go('verify', () => verifyMeanwhile(world, machine)))
    await trouble(world)
    if (fine(world)) await comeToRest(world, rest)
    if (fine(world)) {
      world.witness.atRest()
      const { violations } = await verifyStore(real.handles[0].store, { now: world.scheduler.now() })
      violations.forEach(world.witness.say)
    }
    const { witness, weather, scheduler } = world
    const [tasks, requests] = [witness.seen.tasks.size, witness.requests.size]
    return { seed, story, weather, steps: scheduler.steps(), tasks, requests, violations: witness.violations, trace: readable(lines) }
  } finally {
    await real.close()
  }
}

/** Somebody verifies the store while all this goes on, and must not take what happens between two reads for damage. */
async function verifyMeanwhile(world: World, machine: Machine): Promise<void> {
  await machine.sleep(world.dice.whole(5_000, 90_000))
  const { violations } = await verifyStore(machine.store(machine.actor('verify')), { now: machine.clock() })
  for (const sentence of violations) world.witness.say(`verified meanwhile: ${sentence}`)
}

function fine({ witness, scheduler }: World): boolean {
  if (scheduler.steps() > MOST_STEPS) witness.say(`the story does not end within ${MOST_STEPS} steps`)
  return witness.violations.length === 0
}

/** Until whoever is outside has done what they came for, and a while longer. */
async function trouble(world: World): Promise<void> {
  const { scheduler, dice } = world
  while (world.busy() && fine(world)) await scheduler.tick(scheduler.now() + HOUR_MS)
  await drain(world, scheduler.now() + dice.pick([0, 30_000, 100_000]))
}

/** How a story comes to rest: the pause before each round, and the round. */
type Rest = { pausesMs: number[]; round: (world: World, machine: Machine, nth: number) => Promise<void> }

async function comeToRest(world: World, { pausesMs, round }: Rest): Promise<void> {
  const { scheduler } = world
  world.calm = true
  scheduler.say('', 'ALL TROUBLE IS OVER')
  let machine: Machine | undefined
  world.boot('caretaker', (booted) => (machine = booted))
  for (const [nth, pauseMs] of pausesMs.entries()) {
    await drain(world, scheduler.now() + pauseMs)
    if (!fine(world) || !machine) return
    let done = false
    const caretaker = machine
    caretaker.go('round', () => round(world, caretaker, nth).finally(() => (done = true)))
    while (!done && fine(world)) await scheduler.tick(scheduler.now() + HOUR_MS)
  }
}

async function drain(world: World, until: number): Promise<void> {
  while (fine(world) && (await world.scheduler.tick(until)));
}

/** Ids in the order in which they appear: `#1`, `#2`. */
function readable(lines: string[]): string[] {
  const names = new Map<string, string>()
  const named = (id: string) => {
    if (!names.has(id)) names.set(id, `#${names.size + 1}`)
    return names.get(id) ?? id
  }
  return lines.map((line) => line.replaceAll(/[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-8000-[0-9a-f]{12}/g, named))
}
