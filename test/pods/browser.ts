/** A person's browser at the dashboard of an installation. It reaches the gateways without the Ingress of their public address. */
import { answer, type Answer } from '../flows/calls.ts'
import { atProvider, cookieHeader, keepCookies } from '../servers/oidc-provider.ts'
import { PUBLIC_URL } from './provider.ts'

export type Browser = {
  /** Signs in at the provider. Throws when the gateway at `url` does not open a session. */
  signIn(url: string): Promise<void>
  get(url: string, path: string): Promise<Answer>
  /** A POST of a page of the dashboard. */
  send(url: string, path: string, body: object): Promise<Answer>
}

export function openBrowser(): Browser {
  const cookies = new Map<string, string>()

  async function request(url: string, path: string, init: RequestInit = {}): Promise<Answer> {
    const response = await fetch(`${url}${path}`, { ...init, redirect: 'manual', headers: { cookie: cookieHeader(cookies), ...init.headers } })
    keepCookies(cookies, response)
    return answer(response)
  }

  return {
    async signIn(url) {
      const begun = await request(url, '/dashboard/sign-in')
      const callback = await atProvider(String(begun.headers.get('location')), PUBLIC_URL)
      const { status, body } = await request(url, callback)
      if (status !== 303) throw new Error(`the callback was answered ${status}: ${String(body)}`)
    },
    get: (url, path) => request(url, path),
    send: (url, path, body) => request(url, path, { method: 'POST', headers: { origin: PUBLIC_URL, 'x-tollgate-csrf': '1', 'content-type': 'application/json' }, body: JSON.stringify(body) }),
  }
}
