/** How people sign in to the dashboard, and whether this process may write their API keys. */
import type { Config } from './config.ts'
import { serves } from './needed-backends.ts'
import { isLoopback } from './setting-types.ts'

export const DASHBOARD_MODES = ['off', 'local', 'oidc'] as const
export type DashboardMode = (typeof DASHBOARD_MODES)[number]

/** The mode in force; `off` in a role without the public listener. */
export function dashboardMode(config: Config): DashboardMode {
  if (!serves(config.ROLE)) return 'off'
  if (config.DASHBOARD !== 'auto') return config.DASHBOARD
  return config.ROLE === 'all' && config.STORE_URL.startsWith('sqlite:') && isLocal(config) ? 'local' : 'off'
}

/** Whether clients reach the public listener on loopback only. */
export function isLocal({ HOST, PUBLIC_URL }: Config): boolean {
  return isLoopback(HOST) && (PUBLIC_URL === null || isLoopback(new URL(PUBLIC_URL).hostname))
}

/** Whether a gateway of its own writes ApiKeys. The role `all` has the resources for its controller anyway. */
export function managesKeys(config: Config): boolean {
  return config.ROLE === 'gateway' && config.DASHBOARD_KEY_MANAGEMENT && dashboardMode(config) !== 'off'
}
