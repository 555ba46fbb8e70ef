/** A coding gateway, as `plugins/metering`: admit, extend, settle until it is known; a beat; and the real sweep of reservations. */
import { reservationSweep, type Sweep } from '../../../plugins/metering/orphaned-reservations.ts'
import { Failure, Unavailable } from '../../../src/domain/errors.ts'
import type { Store } from '../../../src/backends/store/store.ts'
import type { Usage } from '../../../src/domain/token-windows.ts'
import type { Machine, World } from '../world.ts'
import { SUBSCRIPTION } from './plan.ts'

const BEAT_MS = 10_000
const SWEEP_MS = 4_000
const LEASE_MS = 20_000

type Running = { inFlight: Set<string>; instance: string; beats: number; keysVersion: number; sweep: Sweep; store: Store }

const gateways = new WeakMap<Machine, Running>()

export function gateway(world: World, machine: Machine): void {
  const instance = world.uuid(machine.clock())
  const inFlight = new Set<string>()
  const store = machine.store(machine.actor('sweep'))
  const sweep = reservationSweep(store, instance, (id) => inFlight.has(id))
  const running: Running = { inFlight, instance, beats: 0, keysVersion: 0, store, sweep }
  machine.process.onCrash.add(() => inFlight.forEach((id) => world.witness.inFlight.delete(id)))

  machine.go('heartbeat', async () => {
    const beating = machine.store(machine.actor('heartbeat'))
    for (let ready = false; !ready; ) {
      ready = await beating.heartbeat(instance, ++running.beats).then(() => true, () => false)
      if (!ready) await machine.sleep(250)
    }
    // Only now it takes requests: an instance that nobody ever saw cannot be found dead.
    gateways.set(machine, running)
    while (!world.calm) {
      await machine.sleep(BEAT_MS)
      await beating.heartbeat(instance, ++running.beats).catch(() => {})
    }
  })
  machine.go('sweep', async () => {
    while (!world.calm) {
      await machine.sleep(SWEEP_MS + world.dice.whole(0, 300))
      await sweepOnce(machine, running).catch((error: unknown) => {
        if (!(error instanceof Unavailable)) throw error
      })
    }
  })
}

async function sweepOnce(machine: Machine, { store, instance, sweep }: Running): Promise<void> {
  const now = machine.clock()
  await sweep.releaseOwn(now)
  if (await store.takeLease('reservations', instance, now + LEASE_MS, now)) await sweep.expireDead(now)
}

/** A client's request at any gateway that takes requests. */
gateway.ask = async (world: World, name: string): Promise<void> => {
  const open = world.machines.filter((machine) => gateways.has(machine))
  if (open.length === 0) return
  const machine = world.dice.pick(open)
  await machine.serve(() => request(world, machine, name))
}

async function request(world: World, machine: Machine, name: string): Promise<void> {
  const { dice, witness } = world
  const running = gateways.get(machine)
  if (!running) return
  const id = world.uuid(machine.clock())
  const flight = (flies: boolean) => [running.inFlight, witness.inFlight].forEach((set) => (flies ? set.add(id) : set.delete(id)))
  const store = machine.store(machine.actor(name))
  flight(true)
  let settles = false
  try {
    const reserved = await admit(world, machine, running, store, id)
    if (reserved === null) return
    settles = true
    if (!witness.requests.has(id)) witness.say(`request ${id} was answered admitted, and nothing is reserved for it`)
    let ours = reserved
    for (let turns = dice.whole(0, 3); turns > 0; turns--) {
      await machine.sleep(dice.whole(50, 9_000))
      if (!dice.chance(0.4)) continue
      const answer = await store.change(SUBSCRIPTION, { op: 'extend', id, tokens: ours * 2 }, machine.clock()).catch(() => null)
      if (answer?.outcome === 'extended') ours = answer.reserved
    }
    const used = dice.whole(1, Math.ceil(ours * 0.6))
    const usage = dice.chance(0.15) ? null : { input: used, cachedInput: Math.floor(used / 2), output: Math.ceil(used / 4) }
    await settle(machine, store, id, usage)
    if (witness.requests.get(id)?.open) witness.say(`request ${id} was answered settled, and is not`)
    flight(false)
  } finally {
    // Its outcome was never learned: the sweep may release what it reserved.
    if (!settles) flight(false)
  }
}

/** Null: refused, or the client did not want to wait for room any longer. */
async function admit(world: World, machine: Machine, running: Running, store: Store, id: string): Promise<number | null> {
  const { dice } = world
  const size = { promptBytes: dice.whole(100, 2_000), maxOutputTokens: dice.pick([null, 200, 500]) }
  const key = dice.pick([{ keyId: 'key-1', keyCap: null }, { keyId: 'key-2', keyCap: 3_000 }])
  for (let tries = 0; tries < 8; tries++) {
    const { instance, keysVersion } = running
    const answer = await store.change(SUBSCRIPTION, { op: 'admit', id, instance, keysVersion, ...key, ...size }, machine.clock())
    if (answer.outcome === 'admitted') return answer.reserved
    if (answer.outcome === 'stale') running.keysVersion = answer.keysVersion
    else if (answer.outcome === 'reserved' || answer.outcome === 'concurrency') await machine.sleep(dice.whole(200, 2_500))
    else return null
  }
  throw new Failure('window_reserved')
}

/** A settlement is tried until it is known, as long as the process lives. */
async function settle(machine: Machine, store: Store, id: string, usage: Usage | null): Promise<void> {
  for (;;) {
    try {
      await store.change(SUBSCRIPTION, { op: 'settle', id, usage, estimated: false }, machine.clock())
      return
    } catch (error) {
      if (!(error instanceof Unavailable)) throw error
      await machine.sleep(1_000)
    }
  }
}

/** When all trouble is over: every gateway that lives says so and sweeps. */
gateway.lookAfter = async (world: World): Promise<void> => {
  for (const machine of world.machines) {
    const running = gateways.get(machine)
    if (!running) continue
    await running.store.heartbeat(running.instance, ++running.beats)
    await sweepOnce(machine, running)
  }
}
