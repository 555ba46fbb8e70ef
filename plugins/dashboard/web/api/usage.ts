/** What the tenant has used, as the server counts it. */
import { api } from './client.ts'
import type { WindowUsage } from './plans.ts'

export type MediaUsage = {
  plan: string
  period: { start: string; end: string } | null
  allowance: string
  held: string
  burned: string
  remaining: string
  days: { date: string; by: Record<string, { count: number; burned: string }> }[]
  keys: { name: string; burned: string }[]
  periods: { start: string; end: string; burned: string; allowance: string }[]
}

export type CodingDay = { date: string; requests: number; input: number; cached_input: number; output: number; charged: number; refusals: number }
export type CodingUsage = {
  plan: string
  session: Required<WindowUsage>
  weekly: Required<WindowUsage>
  overshoot: number
  days: CodingDay[]
  keys: { name: string; used: number }[]
}

export const mediaUsage = (plan: string, signal: AbortSignal): Promise<MediaUsage> => api('/usage/media', { query: { plan }, signal })
export const codingUsage = (plan: string, signal: AbortSignal): Promise<CodingUsage> => api('/usage/coding', { query: { plan }, signal })
