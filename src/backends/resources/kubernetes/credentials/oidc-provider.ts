/**
 * ID tokens of a kubeconfig's `auth-provider: oidc`, as client-go has them: the written one until it expires or is refused, then others by
 * the refresh token (OpenID Connect Core, section 12).
 */
import * as oidc from 'openid-client'
import { Agent, fetch } from 'undici'
import type { Authenticate } from './kubeconfig.ts'
import type { OidcConfig } from './kubeconfig-schema.ts'

const TIMEOUT_SECONDS = 10
const MOST_BYTES = 1024 * 1024
/** Longer than a connection is used without asking again. */
const EARLY_MS = 60_000

/**
 * `readCa` returns the issuer's authority (PEM), or null for the system's. Refreshed tokens stay in memory and never go into the
 * kubeconfig. Rejects with an Error of one sentence without any token. It calls `openid-client` itself, because the official client's
 * authenticator cannot refresh (decision 0020).
 */
export function openOidcProvider(config: OidcConfig, readCa: () => Promise<string | null>, timeoutSeconds = TIMEOUT_SECONDS): Authenticate {
  const issuer = new URL(config['idp-issuer-url'])
  let [idToken, refreshToken] = [config['id-token'] || null, config['refresh-token'] || null]

  async function refresh(): Promise<string> {
    if (!refreshToken)
      throw new Error(
        'RESOURCES_URL: the id-token of the kubeconfig is missing, has expired or is refused, and there is no refresh-token: sign in again.',
      )
    const ca = await readCa()
    const agent = new Agent({ connect: { ...(ca !== null && { ca }) }, allowH2: false, maxResponseSize: MOST_BYTES })
    const tokens = await grant(agent, refreshToken).finally(() => agent.destroy())
    if (!tokens.id_token) throw failed(issuer, { code: 'no id_token' })
    refreshToken = tokens.refresh_token ?? refreshToken
    return tokens.id_token
  }

  async function grant(dispatcher: Agent, token: string): Promise<oidc.TokenEndpointResponse> {
    const customFetch = (url: string, options: object) => fetch(url, { ...options, dispatcher }) as Promise<unknown> as Promise<Response>
    const options = { [oidc.customFetch]: customFetch, timeout: timeoutSeconds }
    try {
      const client = await oidc.discovery(issuer, config['client-id'], undefined, clientAuth(config['client-secret']), options)
      return await oidc.refreshTokenGrant(client, token)
    } catch (error) {
      throw failed(issuer, error)
    }
  }

  return async ({ headers }, isRefused) => {
    if (isRefused) idToken = null
    const isUsable = idToken !== null && Date.now() < expiryOf(idToken) - (refreshToken ? EARLY_MS : 0)
    if (!isUsable) idToken = await refresh()
    headers['Authorization'] = `Bearer ${idToken}`
  }
}

/** By the method that the issuer's metadata name; without them it is client_secret_basic (OpenID Connect Discovery, section 3). */
function clientAuth(secret: string | null | undefined): oidc.ClientAuth {
  if (!secret) return oidc.None()
  const [basic, post] = [oidc.ClientSecretBasic(secret), oidc.ClientSecretPost(secret)]
  return (issuer, ...rest) =>
    ((issuer.token_endpoint_auth_methods_supported ?? ['client_secret_basic']).includes('client_secret_basic') ? basic : post)(
      issuer,
      ...rest,
    )
}

/** `exp` of a JWT in milliseconds since the epoch; 0 for anything else. */
function expiryOf(token: string): number {
  try {
    const { exp } = JSON.parse(Buffer.from(token.split('.')[1] ?? '', 'base64url').toString())
    return typeof exp === 'number' ? exp * 1000 : 0
  } catch {
    return 0
  }
}

/** With the error code of OAuth 2.0 (RFC 6749, section 5.2), of the connection or of the library; without the cause, which holds the answer. */
function failed(issuer: URL, error: unknown): Error {
  const {
    error: refusal,
    code,
    cause,
  } = error as { error?: unknown; code?: unknown; cause?: { code?: unknown; cause?: { code?: unknown } } }
  const found = [refusal, cause?.cause?.code, cause?.code, code].find((one) => typeof one === 'string' && /^[\w ]{1,60}$/.test(one))
  return new Error(
    `RESOURCES_URL: the OIDC issuer ${issuer.host} did not refresh the id-token (${found ?? 'no valid answer'}): check the auth-provider, or sign in again.`,
  )
}
