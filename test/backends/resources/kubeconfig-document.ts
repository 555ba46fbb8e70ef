/** Kubeconfigs of tests, and what their users send. */
export const V1 = 'client.authentication.k8s.io/v1'

/** A kubeconfig whose current context joins that cluster and that user. */
export function kubeconfig(cluster: object, user: object | null, context: object = {}): object {
  return {
    clusters: [{ name: 'c', cluster: { server: 'https://api.example.com:6443', ...cluster } }],
    users: user === null ? null : [{ name: 'u', user }],
    contexts: [{ name: 'x', context: { cluster: 'c', ...(user !== null && { user: 'u' }), ...context } }],
    'current-context': 'x',
  }
}

export const bearer = (token: string) => ({ authorization: `Bearer ${token}` })
export const base64 = (text: string) => Buffer.from(text).toString('base64')
