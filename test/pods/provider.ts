/** An OpenID Connect provider on the machine that pods reach over https. Its certificate is by an authority that nobody else knows. */
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { getCACertificates, setDefaultCACertificates } from 'node:tls'
import type { Test } from 'tap'
import { openAuthority } from '../servers/kube/authority.ts'
import { openOidcProvider, type OidcProvider } from '../servers/oidc-provider.ts'

/** The address of the installation for browsers: that of an Ingress, which the node does not have. */
export const PUBLIC_URL = 'https://gate.test'

export type Provider = OidcProvider & {
  /** The authority's certificate, in PEM. */
  authority: string
}

/** Starts the provider on port 0, with a person of the tenant. This process trusts its authority from then on. */
export async function openProvider(t: Test, address: string, tenant: string): Promise<Provider> {
  const folder = await mkdtemp(join(tmpdir(), 'tollgate-provider-'))
  try {
    const certificates = await openAuthority(folder)
    await certificates.certificate('provider', '/CN=provider', `subjectAltName=IP:${address}`, 'extendedKeyUsage=serverAuth')
    const [authority, cert, key] = await Promise.all(['ca.crt', 'provider.crt', 'provider.key'].map((name) => readFile(join(folder, name)))) as [Buffer, Buffer, Buffer]
    setDefaultCACertificates([...getCACertificates(), authority])
    const provider = await openOidcProvider(t, { clients: [PUBLIC_URL], address, tls: { cert, key } })
    provider.person = { sub: 'ada', name: 'Ada', tenants: [tenant] }
    return Object.assign(provider, { authority: String(authority) })
  } finally {
    await rm(folder, { recursive: true })
  }
}
