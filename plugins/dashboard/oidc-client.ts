/**
 * Client of the OpenID Connect provider: authorization code flow with PKCE, state and nonce (OpenID Connect Core 1.0, section 3.1). The
 * provider is first contacted when somebody signs in.
 */
import * as oidc from 'openid-client'
import { lazy } from '../../src/concurrency/lazy.ts'
import type { Config } from '../../src/config/config.ts'
import { Unavailable } from '../../src/domain/errors.ts'

const TIMEOUT_SECONDS = 10
const CLOCK_TOLERANCE_SECONDS = 30

/** What belongs to one sign-in, and nobody else may know. */
export type SignInSecrets = { state: string; nonce: string; verifier: string }

/** Claims that name a person, the first of them that is there (OpenID Connect Core 1.0, section 5.1). */
export const NAMES = ['name', 'preferred_username', 'email'] as const

/** Claims of a person: those of the ID token, and of the userinfo endpoint where the tenants or the name are not in it. */
export type Claims = Record<string, unknown> & { sub: string }

export type OidcClient = {
  /** The address at the provider to which the browser goes. Throws `Unavailable`. */
  authorizationUrl(callback: string, secrets: SignInSecrets): Promise<string>
  /** Exchanges the code of a callback. Throws `Unavailable`, or `SignInRefused` with a public sentence. */
  claims(callback: URL, secrets: SignInSecrets): Promise<Claims>
  /** The address at which the browser signs out at the provider; null when the provider has none or is away. */
  endSessionUrl(returnTo: string): Promise<string | null>
}

/** The provider's answer does not sign anybody in. */
export class SignInRefused extends Error {}

type Options = Pick<Config, 'OIDC_CLIENT_ID' | 'OIDC_CLIENT_SECRET' | 'OIDC_TENANT_CLAIM' | 'OIDC_SCOPES'> & { issuer: string }

export function openOidcClient(options: Options): OidcClient {
  const issuer = new URL(options.issuer)
  /** The provider's metadata. */
  const { get: discovered } = lazy(discover)

  function discover(): Promise<oidc.Configuration> {
    // The settings allow http for an issuer on loopback only. The signature of the ID token is verified although it comes over TLS: a proxy may end that.
    const execute = [oidc.enableNonRepudiationChecks, ...(issuer.protocol === 'http:' ? [oidc.allowInsecureRequests] : [])]
    const metadata = { [oidc.clockTolerance]: CLOCK_TOLERANCE_SECONDS }
    const auth = clientAuth(options.OIDC_CLIENT_SECRET)
    return oidc.discovery(issuer, options.OIDC_CLIENT_ID, metadata, auth, { execute, timeout: TIMEOUT_SECONDS }).catch((error: unknown) => {
      throw away(error)
    })
  }

  return {
    async authorizationUrl(callback, { state, nonce, verifier }) {
      const parameters = {
        redirect_uri: callback,
        scope: options.OIDC_SCOPES,
        state,
        nonce,
        code_challenge: await oidc.calculatePKCECodeChallenge(verifier),
        code_challenge_method: 'S256',
      }
      return oidc.buildAuthorizationUrl(await discovered(), parameters).href
    },
    async claims(callback, { state, nonce, verifier }) {
      const client = await discovered()
      try {
        const tokens = await oidc.authorizationCodeGrant(client, callback, {
          pkceCodeVerifier: verifier,
          expectedState: state,
          expectedNonce: nonce,
          idTokenExpected: true,
        })
        const claims = tokens.claims() as Claims
        const isComplete = options.OIDC_TENANT_CLAIM in claims && NAMES.some((name) => name in claims)
        if (isComplete || client.serverMetadata().userinfo_endpoint === undefined) return claims
        return { ...claims, ...(await oidc.fetchUserInfo(client, tokens.access_token, claims.sub)) }
      } catch (error) {
        throw isAway(error) ? away(error) : new SignInRefused(sentenceOf(error), { cause: error })
      }
    },
    async endSessionUrl(returnTo) {
      const client = await discovered().catch(() => null)
      if (client?.serverMetadata().end_session_endpoint === undefined) return null
      return oidc.buildEndSessionUrl(client, { post_logout_redirect_uri: returnTo }).href
    },
  }
}

/** By the method that the provider's metadata name; without them it is client_secret_basic (OpenID Connect Discovery 1.0, section 3). */
function clientAuth(secret: string): oidc.ClientAuth {
  if (secret === '') return oidc.None()
  const [basic, post] = [oidc.ClientSecretBasic(secret), oidc.ClientSecretPost(secret)]
  return (issuer, ...rest) =>
    ((issuer.token_endpoint_auth_methods_supported ?? ['client_secret_basic']).includes('client_secret_basic') ? basic : post)(
      issuer,
      ...rest,
    )
}

/** The provider did not answer, or not with what it must; a later try may succeed. */
const away = (cause: unknown) => new Unavailable('sign-in provider', cause)

/** No answer, one that came too late, or a failure of the provider's own. */
function isAway(error: unknown): boolean {
  const { code, cause, status } = error as { code?: unknown; cause?: { status?: unknown }; status?: unknown }
  if (error instanceof oidc.AuthorizationResponseError) return ['server_error', 'temporarily_unavailable'].includes(error.error)
  return code === 'OAUTH_TIMEOUT' || Number(status ?? cause?.status) >= 500 || (error instanceof TypeError && code === undefined)
}

/** A public sentence, with the provider's error code (RFC 6749, section 4.1.2.1) where it has one. Nothing else of its answer is shown. */
function sentenceOf(error: unknown): string {
  const code = error instanceof oidc.AuthorizationResponseError ? error.error : null
  if (code === 'access_denied') return 'The sign-in provider refused the access, or you cancelled it.'
  return code !== null && /^[a-z_]{1,60}$/.test(code)
    ? `The sign-in provider refused: ${code}.`
    : 'The sign-in was not completed. It may have taken too long, or its address was opened a second time.'
}
