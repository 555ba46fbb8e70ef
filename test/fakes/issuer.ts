/** An OpenID Connect issuer on a loopback port: discovery, keys, and a token endpoint that refreshes ID tokens. Each refresh token is valid once. */
import { generateKeyPairSync, randomUUID, sign } from 'node:crypto'
import { once } from 'node:events'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { createServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import type { Test } from 'tap'
import { certify } from '../egress/certificate.ts'

export const CLIENT_ID = 'tollgate'

export type Issuer = {
  /** https://127.0.0.1:port */
  url: string
  /** The certificate, which is its own authority (PEM). */
  ca: string
  /** A signed ID token of `subject` that expires in so many seconds, by the clock. */
  idToken(expiresIn: number, subject?: string): string
  /** The refresh token that is valid now. */
  refreshToken(): string
  /** Each request to the token endpoint: its parameters, and the client authentication. */
  refreshes: { parameters: Record<string, string>; authorization: string | undefined }[]
  /** Overrides of the next answers of the token endpoint, in order. */
  next(...answers: ((response: ServerResponse) => void)[]): void
}

/** `authMethods` is token_endpoint_auth_methods_supported, left out of the metadata without it; `expiresIn` of the ID tokens that it issues, in seconds. */
export async function openIssuer(t: Test, { authMethods, expiresIn = 3600 }: { authMethods?: string[]; expiresIn?: number } = {}): Promise<Issuer> {
  const { privateKey, publicKey } = generateKeyPairSync('rsa', { modulusLength: 2048 })
  const tls = certify(['127.0.0.1'], new Date())
  const refreshes: Issuer['refreshes'] = []
  const answers: ((response: ServerResponse) => void)[] = []
  let [url, generation] = ['', 1]
  const refreshToken = () => `refresh-${generation}`

  function idToken(seconds: number, subject = 'jane'): string {
    const now = Math.floor(Date.now() / 1000)
    const claims = { iss: url, aud: CLIENT_ID, sub: subject, iat: now, exp: now + seconds, jti: randomUUID() }
    const signed = [{ alg: 'RS256', kid: 'k' }, claims].map((part) => Buffer.from(JSON.stringify(part)).toString('base64url')).join('.')
    return `${signed}.${sign('sha256', Buffer.from(signed), privateKey).toString('base64url')}`
  }

  async function refresh(request: IncomingMessage, response: ServerResponse): Promise<void> {
    let body = ''
    for await (const chunk of request) body += chunk
    const parameters = Object.fromEntries(new URLSearchParams(body))
    refreshes.push({ parameters, authorization: request.headers.authorization })
    const answer = answers.shift()
    if (answer) return answer(response)
    if (parameters['grant_type'] !== 'refresh_token' || parameters['refresh_token'] !== refreshToken()) return json(response, 400, { error: 'invalid_grant' })
    generation++
    json(response, 200, { access_token: 'access', token_type: 'Bearer', expires_in: expiresIn, id_token: idToken(expiresIn), refresh_token: refreshToken() })
  }

  const server = createServer(tls, (request, response) => {
    if (request.url === '/token') return void refresh(request, response)
    if (request.url === '/keys') return json(response, 200, { keys: [{ ...publicKey.export({ format: 'jwk' }), kid: 'k', alg: 'RS256', use: 'sig' }] })
    const methods = authMethods && { token_endpoint_auth_methods_supported: authMethods }
    json(response, 200, { issuer: url, token_endpoint: `${url}/token`, jwks_uri: `${url}/keys`, id_token_signing_alg_values_supported: ['RS256'], ...methods })
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  url = `https://127.0.0.1:${(server.address() as AddressInfo).port}`
  t.teardown(() => {
    server.closeAllConnections()
    server.close()
  })
  return { url, ca: tls.cert, idToken, refreshToken, refreshes, next: (...more) => void answers.push(...more) }
}

function json(response: ServerResponse, status: number, body: object): void {
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body))
}
