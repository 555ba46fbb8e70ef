/** A simulated coding gateway: the admission, the growth, the settlement and the sweeps of `plugins/metering`, and heartbeats. */
import { EventEmitter } from 'node:events'
import { openAdmission, type Admission, type Admissions } from '../../../plugins/metering/admission.ts'
import type { AdmissionQueue } from '../../../plugins/metering/admission-queue.ts'
import type { InFlight } from '../../../plugins/metering/in-flight.ts'
import { reservationSweep, type Sweep } from '../../../plugins/metering/orphaned-reservations.ts'
import { openSettlements, type Settlements } from '../../../plugins/metering/settlement.ts'
import { openUnknownAdmissions, type UnknownAdmissions } from '../../../plugins/metering/unknown-admissions.ts'
import { Unavailable } from '../../../src/domain/errors.ts'
import type { Store } from '../../../src/backends/store/store.ts'
import type { Answer, Creating, CreatingNow, Stale } from '../../../src/domain/subscription/commands.ts'
import type { OpenReservation, Settlement } from '../../../src/upstream/usage/reservation.ts'
import type { Machine, World } from '../world.ts'
import { SUBSCRIPTION } from './plan.ts'

const HEARTBEAT_MS = 10_000
const SWEEP_MS = 4_000
const LEASE_MS = 20_000
const OUTBOX_MS = 10_000

type Metering = { admissions: Admissions; settlements: Settlements; sweep: Sweep; unknown: UnknownAdmissions }
type Running = Metering & { instance: string; heartbeats: number; store: Store }
type Caller = Parameters<Admissions['admit']>[0]

/** Of a client whose connection stays open. */
const CONNECTED = { closed: false, once() {}, off() {} } as unknown as Parameters<Admissions['admit']>[2]
const QUIET = { info() {}, warn() {}, error() {} }
const UNCOUNTED = { refused() {}, admittedAgain() {}, open() {}, extended() {}, settled() {}, swept() {} }

const gateways = new WeakMap<Machine, Running>()

export function gateway(world: World, machine: Machine): void {
  const instance = world.uuid(machine.clock())
  const store = machine.store(machine.actor('sweep'))
  const ids = new Set<string>()
  const running: Running = { ...metering(world, machine, { instance, store, ids }), instance, heartbeats: 0, store }
  machine.process.onCrash.add(() => {
    for (const id of ids) world.checker.inFlight.delete(id)
    if (world.isSole) world.checker.dead.add(instance)
  })

  machine.go('heartbeat', async () => {
    const heartbeatStore = machine.store(machine.actor('heartbeat'))
    const start = async () => {
      await heartbeatStore.heartbeat(instance, ++running.heartbeats)
      if (world.isSole) await running.sweep.expireOthers(machine.clock())
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
  await store.storeOutboxes(now - OUTBOX_MS, 10)
  if (isSole) await sweep.expireOthers(now)
  if (!isSole && (await store.takeLease('reservations', instance, now + LEASE_MS, now))) await sweep.expireDead(now)
}

/** A client's request to any gateway that accepts requests. */
gateway.request = async (world: World): Promise<void> => {
  const open = world.machines.filter((machine) => gateways.has(machine))
  if (open.length === 0) return
  const machine = world.rng.pick(open)
  await machine.serve(() => request(world, machine))
}

/** As `plugins/metering/metering.ts`, with the time, the ids and the pauses of the simulation. */
function metering(world: World, machine: Machine, { instance, store, ids }: { instance: string; store: Store; ids: Set<string> }): Metering {
  const all = [ids, world.checker.inFlight]
  const inFlight: InFlight = { add: (id) => all.forEach((set) => set.add(id)), has: (id) => ids.has(id), remove: (id) => all.forEach((set) => set.delete(id)), drained: async () => ids.size === 0 }
  const unknown = openUnknownAdmissions(store, instance, inFlight.has)
  const shared = { store: machine.store(machine.actor('requests')), clock: machine.clock, inFlight, unknown, queue: queueOf(world, machine), metrics: UNCOUNTED }
  const admissions = openAdmission({ ...shared, instance, uuid: () => world.uuid(machine.clock()), refusals: { count() {}, async flush() {} } })
  return { admissions, settlements: openSettlements({ ...shared, pause: machine.sleep }), sweep: reservationSweep(store, instance), unknown }
}

/** A queue without an order: whoever is blocked tries again by itself. */
function queueOf({ rng }: World, machine: Machine): AdmissionQueue {
  return {
    isFree: () => true,
    async admit(_, attempt, blockOf) {
      let answer = await attempt()
      for (let tries = 1; tries < 8 && blockOf(answer); tries++) {
        await machine.sleep(rng.whole(200, 2_500))
        answer = await attempt()
      }
      return answer
    },
    notify() {},
  }
}

/** As `plugins/auth`: uses cached facts of the key, and reads them again when they are stale. */
function callerOf({ rng, leases }: World, machine: Machine): Caller {
  const key = rng.pick([{ keyId: 'key-1', keyCap: null }, { keyId: 'key-2', keyCap: leases ? 15_000 : 3_000 }])
  const creating: Creating = async (run) => {
    for (;;) {
      const answer = await run(SUBSCRIPTION, { ...key, keysVersion: known.get(machine) ?? 0 })
      if (answer.outcome !== 'stale') return answer as Exclude<typeof answer, Stale>
      known.set(machine, (answer as { outcome: string } as Stale).keysVersion)
    }
  }
  const creatingNow: CreatingNow = (run) => {
    const answer = run(SUBSCRIPTION, { ...key, keysVersion: known.get(machine) ?? 0 })
    return answer?.outcome === 'stale' ? null : (answer as Exclude<typeof answer, Stale>)
  }
  return { key: { subscription: SUBSCRIPTION, keyId: key.keyId }, creating, creatingNow } as unknown as Caller
}

/** The `keysVersion` that a gateway has seen. */
const known = new WeakMap<Machine, number>()

async function request(world: World, machine: Machine): Promise<void> {
  const { rng, checker } = world
  const running = gateways.get(machine)
  if (!running) return
  const size = { promptBytes: rng.whole(100, 2_000), maxOutputTokens: rng.pick([null, 200, 500]) }
  const caller = callerOf(world, machine)
  const answer = running.admissions.admitNow(caller, size, CONNECTED, () => new Unavailable('store', new Error('refused'))) ?? (await running.admissions.admit(caller, size, CONNECTED))
  if ('outcome' in answer) return refused(world, answer)
  checker.bills.sent(machine.process, answer.id, await isStored(answer.write.promise()))
  const raw = Object.assign(new EventEmitter(), { closed: false, destroyed: false })
  const seen = { log: QUIET, logged: null, span: { run: <T>(work: () => T) => work() } } as unknown as Parameters<Settlements['open']>[1]
  const reservation = running.settlements.open(answer, seen, { raw } as unknown as Parameters<Settlements['open']>[2])
  const used = upstream(world, machine, answer, reservation)
  reservation.settleWith(used)
  // A client may leave before the usage is known.
  if (rng.chance(0.7)) await used
  raw.emit('close')
  await new Promise<unknown>((settled) => seen.logged?.whenSettled(settled))
  if (checker.requests.get(answer.id)?.open) checker.report(`request ${answer.id} was answered settled, but is still open`)
}

/** Whether it is stored by now: no step of the scheduler passes meanwhile. */
async function isStored(durable: Promise<void>): Promise<boolean> {
  let isDone = false
  void durable.then(() => (isDone = true), () => {})
  for (let turns = 0; turns < 5; turns++) await Promise.resolve()
  return isDone
}

function refused({ checker }: World, answer: Exclude<Answer<'admit'>, { outcome: 'admitted' | 'stale' }>): void {
  if ('windows' in answer) checker.refused(SUBSCRIPTION, answer.windows)
}

/** The upstream works before the admission is stored, and the client gets its answer only then. Resolves with the usage to charge; null when there is none. */
async function upstream(world: World, machine: Machine, { id, admitted, write }: Admission, reservation: OpenReservation): Promise<Settlement | null> {
  const { rng, checker } = world
  const isKept = await write.promise().then(() => true, () => false)
  if (isKept && !checker.requests.has(id)) checker.report(`request ${id} was answered admitted without a reservation`)
  let own = admitted.reserved
  for (let extensions = isKept ? rng.whole(0, 3) : 0; extensions > 0; extensions--) {
    await machine.sleep(rng.whole(50, 9_000))
    if (!rng.chance(0.4)) continue
    if ((await reservation.ensure(own * 2).catch(() => 'gone')) === 'extended') own *= 2
  }
  const used = rng.whole(1, Math.ceil(own * 0.6))
  return rng.chance(0.15) ? null : { usage: { input: used, cachedInput: Math.floor(used / 2), output: Math.ceil(used / 4) }, estimated: false }
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
