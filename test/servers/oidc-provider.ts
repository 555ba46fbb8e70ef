/** A certified OpenID Connect provider (npm `oidc-provider`) on port 0: it signs its present user in without a question, and keeps sessions in the browser's cookies. */
import { createServer } from 'node:http'
import { createServer as createTlsServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import { Provider } from 'oidc-provider'
import type { Test } from 'tap'

export type OidcProvider = {
  issuer: string
  /** The next person to sign in, and the claims about that person. */
  person: { sub: string } & Record<string, unknown>
  /** What `/jwks` answers instead of the provider's own keys. */
  publishedKeys: object | null
  /** `/token` answers after it. */
  pause: Promise<void>
  /** Stops to answer, and answers again on the same port. */
  stop(): Promise<void>
  start(): Promise<void>
}

type Options = {
  /** Addresses of the dashboard, such as `http://127.0.0.1:8080`. */
  clients: string[]
  /** Claims in the ID token too, and not at the userinfo endpoint alone. */
  inIdToken?: boolean
  port?: number
  address?: string
  /** Certificate and key, for https. */
  tls?: { cert: Buffer; key: Buffer }
}

export const CLIENT = { id: 'dashboard', secret: 'a secret of the dashboard at the provider' }

export async function openOidcProvider(t: Test, { clients, inIdToken = false, port = 0, address = '127.0.0.1', tls }: Options): Promise<OidcProvider> {
  const server = tls ? createTlsServer(tls) : createServer()
  const listen = (at: number) => new Promise<void>((resolve) => server.listen(at, address, resolve))
  const close = async () => {
    server.closeAllConnections()
    if (server.listening) await new Promise((resolve) => server.close(resolve))
  }
  await listen(port)
  t.teardown(close)
  const { port: own } = server.address() as AddressInfo
  const issuer = `${tls ? 'https' : 'http'}://${address}:${own}`
  const found: OidcProvider = { issuer, person: { sub: 'ada' }, publishedKeys: null, pause: Promise.resolve(), stop: close, start: () => listen(own) }
  const provider = new Provider(issuer, {
    clients: [
      {
        client_id: CLIENT.id,
        client_secret: CLIENT.secret,
        redirect_uris: clients.map((client) => `${client}/dashboard/callback`),
        post_logout_redirect_uris: clients.map((client) => `${client}/dashboard/`),
      },
    ],
    cookies: { keys: ['a key of the test'] },
    claims: { openid: ['sub', 'tenants'], profile: ['name'] },
    conformIdTokenClaims: !inIdToken,
    features: { devInteractions: { enabled: false } },
    pkce: { required: () => true },
    findAccount: (_context: unknown, sub: string) => ({ accountId: sub, claims: async () => ({ ...found.person, sub }) }),
    interactions: { url: (_context: unknown, { uid }: { uid: string }) => `/interaction/${uid}` },
    ttl: { Interaction: 600, Session: 600, Grant: 600, AccessToken: 600, IdToken: 600, AuthorizationCode: 60 },
  })
  const handle = provider.callback()
  server.on('request', (request, response) => {
    if (request.url?.startsWith('/interaction/')) void interact(provider, found.person.sub, request, response)
    else if (request.url === '/jwks' && found.publishedKeys) response.setHeader('content-type', 'application/json').end(JSON.stringify(found.publishedKeys))
    else if (request.url === '/token') void found.pause.then(() => handle(request, response))
    else void handle(request, response)
  })
  return found
}

/** Signs the person in, or grants what the client asked for. */
async function interact(provider: Provider, accountId: string, ...exchange: Parameters<Provider['interactionDetails']>): Promise<void> {
  const { prompt, params, session } = await provider.interactionDetails(...exchange)
  if (prompt.name === 'login') return provider.interactionFinished(...exchange, { login: { accountId } })
  const grant = new provider.Grant({ accountId: session?.accountId ?? accountId, clientId: params.client_id })
  grant.addOIDCScope(params.scope)
  return provider.interactionFinished(...exchange, { consent: { grantId: await grant.save() } })
}

/** Follows the provider from `url`, as a browser, until it sends the browser back to `publicUrl`. Returns the path there. */
export async function atProvider(url: string, publicUrl: string): Promise<string> {
  const cookies = new Map<string, string>()
  for (let at = url; ; ) {
    const response = await fetch(at, { redirect: 'manual', headers: { cookie: cookieHeader(cookies) } })
    keepCookies(cookies, response)
    const location = response.headers.get('location')
    if (location === null) throw new Error(`the provider answered ${response.status}: ${await response.text()}`)
    at = new URL(location, at).href
    if (at.startsWith(publicUrl)) return at.slice(publicUrl.length)
  }
}

export function cookieHeader(cookies: Map<string, string>): string {
  return [...cookies].map(([name, value]) => `${name}=${value}`).join('; ')
}

export function keepCookies(cookies: Map<string, string>, response: Response): void {
  for (const line of response.headers.getSetCookie()) {
    const [name = '', value = ''] = line.split(';')[0]?.split(/=(.*)/) ?? []
    cookies.set(name, value)
  }
}
