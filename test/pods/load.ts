/** Load of clients that repeat calls until they are stopped. */
import { randomUUID } from 'node:crypto'
import { setTimeout as pause } from 'node:timers/promises'
import { all, answer, at, events, get, post, type Caller } from '../flows/calls.ts'
import { LASTING } from './model.ts'

export type Keys = { coding: string; media: string }

/** Results of all calls: successes, errors of the others, and the number of created images. */
export type Load = { done: number; failed: string[]; ordered: number }

/** Between two calls of a client: without it, clients and processes on the same cores only make each other wait. */
const CALL_PAUSE_MS = 100
const PICTURE = { kind: 'image', prompt: 'a lighthouse', size: '128x128' }

/** Each of `clients` makes one call of each kind in turn. With `again` a failed call is retried up to `tries` times, twice a second, as the API documents: then only final failures count. */
export function openLoad(gateway: Caller, keys: Keys, { clients, again, tries: most = 20 }: { clients: number; again: boolean; tries?: number }): { sofar: Readonly<Load>; stop(): Promise<Load> } {
  const load: Load = { done: 0, failed: [], ordered: 0 }
  let isOver = false
  const call = async (n: number, id: string): Promise<void> => {
    if (n % 4 === 0) await talk(gateway, keys.coding)
    else if (n % 4 === 1) await listen(gateway, keys.coding, 'Count.')
    else if (n % 4 === 2) expect(await get(gateway, keys.coding, '/v1/usage'), 200)
    else {
      await order(gateway, keys.media, id)
      load.ordered++
    }
  }
  const attempt = async (n: number, id: string, tries: number): Promise<void> => {
    try {
      await call(n, id)
      load.done++
    } catch (error) {
      if (tries <= 1) return void load.failed.push(`call ${n % 4}: ${String(error)}: ${String((error as Error).cause)}`)
      await pause(500)
      await attempt(n, id, tries - 1)
    }
  }
  const client = async (first: number): Promise<void> => {
    for (let n = first; !isOver; n++) {
      await attempt(n, randomUUID(), again ? most : 1)
      await pause(CALL_PAUSE_MS)
    }
  }
  const running = Array.from({ length: clients }, (_, first) => client(first))
  return {
    sofar: load,
    async stop() {
      isOver = true
      await Promise.all(running)
      return load
    },
  }
}

function expect({ status, body }: { status: number; body: unknown }, wanted: number): void {
  if (status !== wanted) throw new Error(`answered ${status}: ${JSON.stringify(body)}`)
}

async function talk(gateway: Caller, key: string): Promise<void> {
  expect(await answer(await post(gateway, key, '/v1/chat/completions', { model: 'svc-code', messages: [{ role: 'user', content: 'Hello' }] })), 200)
}

/** Reads a stream, which must be complete. */
export async function listen(gateway: Caller, key: string, content: string): Promise<void> {
  const response = await post(gateway, key, '/v1/chat/completions', { model: 'svc-code', stream: true, messages: [{ role: 'user', content }] })
  if (response.status !== 200) expect(await answer(response), 200)
  const last = (await all(events(response))).at(-1)
  if (last?.data !== '[DONE]') throw new Error(`a stream ended with ${JSON.stringify(last)}`)
}

/** Streams that last until the model ends them. */
export function listenLong(gateway: Caller, key: string, count: number): Promise<PromiseSettledResult<void>[]> {
  return Promise.allSettled(Array.from({ length: count }, () => listen(gateway, key, LASTING)))
}

/** Creates an image task and reads it once. The id is the Idempotency-Key. */
async function order(gateway: Caller, key: string, id: string): Promise<void> {
  const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json', 'idempotency-key': id }
  const accepted = await answer(await fetch(`${gateway.url}/api/v1/generations`, { method: 'POST', headers, body: JSON.stringify(PICTURE) }))
  if (accepted.status !== 202 && accepted.status !== 200) expect(accepted, 202)
  expect(await get(gateway, key, `/api/v1/generations/${String(at(accepted.body, 'id'))}`), 200)
}
