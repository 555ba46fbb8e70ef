/** The plans of a drill's load, and what is charged for it. */
import { setTimeout as pause } from 'node:timers/promises'
import { at, get, type Caller } from '../flows/calls.ts'
import { apiKey, codingPlan, mediaPlan } from '../flows/manifests.ts'

const FREE = { requestsPerMinute: 1_000_000 }
const WIDE = { sessionWindow: { tokens: 1e9, durationSeconds: 18_000 }, weeklyWindow: { tokens: 1e9 } }

/** A plan of each product with limits that no load reaches, and a key of each: `media` and `coding`. */
export const LOAD_PLANS = [mediaPlan('studio', FREE, { allowance: '100000.00' }), apiKey('media', 'studio'), codingPlan('coder', FREE, WIDE), apiKey('coding', 'coder')]

export const IMAGE_PRICE = 0.04

/** Polls without a timeout until nothing of the key's Media plan is held; resolves to what is burned. */
export async function settled(caller: Caller, key: string): Promise<string> {
  for (;;) {
    const { body } = await get(caller, key, '/api/v1/usage')
    if (at(body, 'held') === '0.0000') return String(at(body, 'burned'))
    await pause(200)
  }
}
