/** The tenant of this browser's last page, for who signs in again after a session has ended: a new session begins with the first one. */
const TENANT = 'tenant'
const ENDED = 'session-ended'

/** Notes the tenant that a page shows. */
export const rememberTenant = (tenant: string): void => localStorage.setItem(TENANT, tenant)

/** Notes that the session has ended by itself. */
export const noteEnd = (): void => localStorage.setItem(ENDED, '1')

/** The tenant to return to, once after each end. */
export function tenantBefore(): string | null {
  if (localStorage.getItem(ENDED) === null) return null
  localStorage.removeItem(ENDED)
  return localStorage.getItem(TENANT)
}

// What another tab has removed at sign-out, this one forgets too.
addEventListener('storage', ({ key, newValue }) => void (newValue === null && key !== null && sessionStorage.removeItem(key)))

/** Forgets all that was stored for the person, at sign-out; the theme is the browser's. */
export function forgetPerson(drafts: string): void {
  for (const storage of [localStorage, sessionStorage])
    for (const name of Object.keys(storage)) if (name === TENANT || name === ENDED || name.startsWith(drafts)) storage.removeItem(name)
}
