/** A simulated coding gateway, as `plugins/metering`: admits, extends and settles requests, sends heartbeats, and runs the real reservation sweep. */
import { reservationSweep, type Sweep } from '../../../plugins/metering/orphaned-reservations.ts'
import { openUnknownAdmissions, type UnknownAdmissions } from '../../../plugins/metering/unknown-admissions.ts'
import { overLimit, Unavailable } from '../../../src/domain/errors.ts'
import type { Store } from '../../../src/backends/store/store.ts'
import type { Usage } from '../../../src/domain/token-windows.ts'
import type { Machine, World } from '../world.ts'
import { SUBSCRIPTION } from './plan.ts'

const HEARTBEAT_MS = 10_000
const SWEEP_MS = 4_000
const LEASE_MS = 20_000

/** An admitted request. `durable` as in `Store.decide`. */
type Admission = { reserved: number; durable: Promise<void> }
type Running = { inFlight: Set<string>; instance: string; heartbeats: number; keysVersion: number; sweep: Sweep; unknown: UnknownAdmissions; store: Store }

const gateways = new WeakMap<Machine, Running>()

export function gateway(world: World, machine: Machine): void {
  const instance = world.uuid(machine.clock())
  const inFlight = new Set<string>()
  const store = machine.store(machine.actor('sweep'))
  const sweep = reservationSweep(store, instance)
  const unknown = openUnknownAdmissions(store, instance, (id) => inFlight.has(id))
  const running: Running = { inFlight, instance, heartbeats: 0, keysVersion: 0, store, sweep, unknown }
  machine.process.onCrash.add(() => {
    for (const id of inFlight) world.checker.inFlight.delete(id)
    if (world.isSole) world.checker.dead.add(instance)
  })

  machine.go('heartbeat', async () => {
    const heartbeatStore = machine.store(machine.actor('heartbeat'))
    const start = async () => {
      await heartbeatStore.heartbeat(instance, ++running.heartbeats)
      if (world.isSole) await sweep.expireOthers(machine.clock())
    }
    for (let ready = false; !ready; ) {
      ready = await start().then(() => true, () => false)
      if (!ready) await machine.sleep(250)
    }
    // Accepts requests only now: an instance without a heartbeat cannot be detected as dead.
    gateways.set(machine, running)
    while (!world.recovering) {
      await machine.sleep(HEARTBEAT_MS)
      await heartbeatStore.heartbeat(instance, ++running.heartbeats).catch(() => {})
    }
  })
  machine.go('sweep', async () => {
    while (!world.recovering) {
      await machine.sleep(SWEEP_MS + world.rng.whole(0, 300))
      await sweepOnce(world, machine, running).catch((error: unknown) => {
        if (!(error instanceof Unavailable)) throw error
      })
    }
  })
}

async function sweepOnce({ isSole }: World, machine: Machine, { store, instance, sweep, unknown }: Running): Promise<void> {
  const now = machine.clock()
  await unknown.release(now)
  if (!isSole && (await store.takeLease('reservations', instance, now + LEASE_MS, now))) await sweep.expireDead(now)
}

/** A client's request to any gateway that accepts requests. */
gateway.request = async (world: World, name: string): Promise<void> => {
  const open = world.machines.filter((machine) => gateways.has(machine))
  if (open.length === 0) return
  const machine = world.rng.pick(open)
  await machine.serve(() => request(world, machine, name))
}

async function request(world: World, machine: Machine, name: string): Promise<void> {
  const { checker } = world
  const running = gateways.get(machine)
  if (!running) return
  const id = world.uuid(machine.clock())
  const setInFlight = (isInFlight: boolean) => [running.inFlight, checker.inFlight].forEach((set) => (isInFlight ? set.add(id) : set.delete(id)))
  const store = machine.store(machine.actor(name))
  setInFlight(true)
  let settles = false
  try {
    const admission = await admit(world, machine, running, store, id)
    if (admission === null) return
    settles = true
    checker.bills.sent(machine.process, id, await isStored(admission.durable))
    const usage = await answer(world, machine, store, id, admission)
    const isKept = await admission.durable.then(() => true, () => false)
    if (!isKept) running.unknown.add(SUBSCRIPTION, machine.clock())
    await settle(machine, store, id, usage)
    if (checker.requests.get(id)?.open) checker.report(`request ${id} was answered settled, but is still open`)
    setInFlight(false)
  } finally {
    // Unknown outcome: the sweep may release the reservation.
    if (!settles) {
      setInFlight(false)
      running.unknown.add(SUBSCRIPTION, machine.clock())
    }
  }
}

/** Whether it is stored by now: no step of the scheduler passes meanwhile. */
async function isStored(durable: Promise<void>): Promise<boolean> {
  let isDone = false
  void durable.then(() => (isDone = true), () => {})
  for (let turns = 0; turns < 5; turns++) await Promise.resolve()
  return isDone
}

/** The upstream works before the admission is stored, and the client gets its answer only then. Returns the usage to charge; null when there is none. */
async function answer(world: World, machine: Machine, store: Store, id: string, { reserved, durable }: Admission): Promise<Usage | null> {
  const { rng, checker } = world
  const isStored = await durable.then(() => true, () => false)
  if (!isStored) return null
  if (!checker.requests.has(id)) checker.report(`request ${id} was answered admitted without a reservation`)
  let own = reserved
  for (let extensions = rng.whole(0, 3); extensions > 0; extensions--) {
    await machine.sleep(rng.whole(50, 9_000))
    if (!rng.chance(0.4)) continue
    const answer = await store.change(SUBSCRIPTION, { op: 'extend', id, tokens: own * 2 }, machine.clock()).catch(() => null)
    if (answer?.outcome === 'extended') own = answer.reserved
  }
  const used = rng.whole(1, Math.ceil(own * 0.6))
  return rng.chance(0.15) ? null : { input: used, cachedInput: Math.floor(used / 2), output: Math.ceil(used / 4) }
}

/** Null when refused, which rests on what is stored by then. */
async function admit({ rng, checker }: World, machine: Machine, running: Running, store: Store, id: string): Promise<Admission | null> {
  const size = { promptBytes: rng.whole(100, 2_000), maxOutputTokens: rng.pick([null, 200, 500]) }
  const key = rng.pick([{ keyId: 'key-1', keyCap: null }, { keyId: 'key-2', keyCap: 3_000 }])
  for (let tries = 0; tries < 8; tries++) {
    const { instance, keysVersion } = running
    const { answer, durable } = await store.decide<'admit'>(SUBSCRIPTION, { op: 'admit', id, instance, keysVersion, ...key, ...size }, machine.clock())
    if (answer.outcome === 'admitted') return { reserved: answer.reserved, durable }
    if (answer.outcome === 'stale') running.keysVersion = answer.keysVersion
    else if (answer.outcome === 'reserved' || answer.outcome === 'concurrency') await machine.sleep(rng.whole(200, 2_500))
    else {
      await durable
      if ('windows' in answer) checker.refused(SUBSCRIPTION, answer.windows)
      return null
    }
  }
  throw overLimit('reserved_tokens')
}

/** Retries until the outcome is known, as long as the process runs. */
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

/** Recovery: every running gateway sends a heartbeat and sweeps. */
gateway.recover = async (world: World): Promise<void> => {
  for (const machine of world.machines) {
    const running = gateways.get(machine)
    if (!running) continue
    await running.store.heartbeat(running.instance, ++running.heartbeats)
    await world.reconcile(running.store, machine)
    await sweepOnce(world, machine, running)
  }
}
