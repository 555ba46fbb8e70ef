/** `kubernetes:` as an address: which API server, which namespaces, and the Lease by which controllers agree on one of them. */

export type Address = {
  /** The namespaces that are looked at; null for all of them. */
  namespaces: string[] | null
  /** Path of a kubeconfig; null takes the pod's ServiceAccount, or what kubectl would take. */
  kubeconfig: string | null
  lease: string
  /** Namespace of the Lease; null takes the pod's own. */
  leaseNamespace: string | null
}

const LABEL = /^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$/
const KNOWN = ['namespace', 'kubeconfig', 'lease', 'leaseNamespace']
const MAY_BE = `kubernetes: may be followed by ?${KNOWN.join('=…&')}=…, namespace being a list separated by commas`

/** Reads `kubernetes:[?namespace=a,b&kubeconfig=/path&lease=name&leaseNamespace=name]`. Throws an Error of one sentence on anything else. */
export function readAddress(url: string): Address {
  const [, query, ...rest] = url.slice('kubernetes:'.length).match(/^(?:\/\/)?(?:\?([^?#]*))?$/) ?? []
  if (!url.startsWith('kubernetes:') || rest.length > 0 || (query === undefined && !/^kubernetes:(\/\/)?\??$/.test(url))) throw nonsense(url)
  const given = new URLSearchParams(query)
  const names = [...given.keys()]
  if (names.some((name) => !KNOWN.includes(name)) || new Set(names).size < names.length) throw nonsense(url)
  const namespaces = given.get('namespace')?.split(',').map((name) => name.trim()) ?? null
  const lease = given.get('lease') ?? 'tollgate-controller'
  const leaseNamespace = given.get('leaseNamespace')
  const labels = [...(namespaces ?? []), lease, ...(leaseNamespace === null ? [] : [leaseNamespace])]
  if (!labels.every((name) => LABEL.test(name))) throw nonsense(url)
  return { namespaces: namespaces && [...new Set(namespaces)], kubeconfig: given.get('kubeconfig') || null, lease, leaseNamespace }
}

function nonsense(url: string): Error {
  return new Error(`RESOURCES_URL was ${JSON.stringify(url)}; ${MAY_BE}.`)
}
