/** The tenant's plans, kept current while the page is visible. */
import { signal } from '@preact/signals'
import { api } from './client.ts'

export type Product = 'Room' | 'Media' | 'Coding'
export type WindowUsage = { limit: number; used: number; reserved?: number; remaining?: number; resets_at: string | null }

export type Plan = {
  name: string
  display_name: string
  product: Product
  state: 'Active' | 'Inactive'
  reason: string | null
  message: string | null
  starts_at: string | null
  expires_at: string | null
  unlocks: string[]
  period: { start: string; end: string } | null
  summary: {
    media?: { allowance: string; held: string; burned: string; remaining: string }
    coding?: { session: WindowUsage; weekly: WindowUsage }
  }
  key_policy: { max_keys: number; rotation_overlap_seconds: number }
}

export const plans = signal<Plan[] | null>(null)
export const plansError = signal<Error | null>(null)

let tenants = 0

/** Forgets the plans of a tenant, also those that are still being read, before another one takes its place. */
export function forgetPlans(): void {
  tenants++
  plans.value = null
  plansError.value = null
}

/** Loads the plans again; a failure keeps the last ones. */
export async function loadPlans(): Promise<void> {
  const begun = tenants
  try {
    const { data } = await api<{ data: Plan[] }>('/plans')
    if (begun !== tenants) return
    plans.value = data
    plansError.value = null
  } catch (error) {
    if (begun === tenants) plansError.value = error as Error
  }
}

/** Whether the plan pays for media: every product but Coding. */
export const isMedia = ({ product }: Plan): boolean => product !== 'Coding'
/** Whether the plan works now. */
export const isActive = ({ state }: Plan): boolean => state === 'Active'
