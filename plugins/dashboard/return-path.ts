/** Where a browser goes after sign-in: the page of the dashboard at which it was signed out. */

/** A path of the dashboard, with a query or without: no browser takes it for another address. */
const RETURN = /^\/dashboard\/[\w/-]{0,200}(\?[\w=&%.~+:-]{0,500})?$/

/** The path, or that of Home for anything else. */
export function returnPath(path: string | null | undefined): string {
  return RETURN.test(path ?? '') ? (path ?? '') : '/dashboard/'
}
