/** Parses the `kubernetes:` address of RESOURCES_URL: kubeconfig, namespaces, and the Lease of the leader election. */

export type Address = {
  /** The namespaces to watch; null for all. */
  namespaces: string[] | null
  /** Path of a kubeconfig; null for the pod's ServiceAccount or else the kubeconfig that kubectl would use. */
  kubeconfig: string | null
  lease: string
  /** Namespace of the Lease; null for the pod's own. */
  leaseNamespace: string | null
}

const LABEL = /^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$/
const KNOWN = ['namespace', 'kubeconfig', 'lease', 'leaseNamespace']
const MAY_BE = `kubernetes: may be followed by ?${KNOWN.join('=…&')}=…, where namespace is a comma-separated list`

/** Parses `kubernetes:[?namespace=a,b&kubeconfig=/path&lease=name&leaseNamespace=name]`. Throws an Error of one sentence on anything else. */
export function readAddress(url: string): Address {
  const [, query, ...rest] = url.slice('kubernetes:'.length).match(/^(?:\/\/)?(?:\?([^?#]*))?$/) ?? []
  if (!url.startsWith('kubernetes:') || rest.length > 0 || (query === undefined && !/^kubernetes:(\/\/)?\??$/.test(url))) throw invalid(url)
  const given = new URLSearchParams(query)
  const names = [...given.keys()]
  if (names.some((name) => !KNOWN.includes(name)) || new Set(names).size < names.length) throw invalid(url)
  const namespaces =
    given
      .get('namespace')
      ?.split(',')
      .map((name) => name.trim()) ?? null
  const lease = given.get('lease') ?? 'tollgate-controller'
  const leaseNamespace = given.get('leaseNamespace')
  const labels = [...(namespaces ?? []), lease, ...(leaseNamespace === null ? [] : [leaseNamespace])]
  if (!labels.every((name) => LABEL.test(name))) throw invalid(url)
  return { namespaces: namespaces && [...new Set(namespaces)], kubeconfig: given.get('kubeconfig') || null, lease, leaseNamespace }
}

function invalid(url: string): Error {
  return new Error(`RESOURCES_URL was ${JSON.stringify(url)}; ${MAY_BE}.`)
}
