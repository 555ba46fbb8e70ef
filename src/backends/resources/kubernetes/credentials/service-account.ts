import { isIPv6 } from 'node:net'
import { join } from 'node:path'
import type { ResourcesConfig } from '../../resources.ts'
import { readCredential, readIfThere } from './credential-file.ts'
import type { ApiAccess } from './credentials.ts'

/** Where every pod has it: https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/. */
export const ACCOUNT_FOLDER = '/var/run/secrets/kubernetes.io/serviceaccount'

/** The API server as the pod's ServiceAccount reaches it; null outside of a pod, and in one whose token is not mounted. */
export async function openServiceAccount(environment: ResourcesConfig['environment'], folder: string): Promise<ApiAccess | null> {
  const [host, port] = [environment['KUBERNETES_SERVICE_HOST'], environment['KUBERNETES_SERVICE_PORT']]
  const tokenPath = join(folder, 'token')
  if (!host || !port || (await readIfThere(tokenPath)) === null) return null
  const server = URL.parse(`https://${isIPv6(host) ? `[${host}]` : host}:${port}`)
  if (!server)
    throw new Error('RESOURCES_URL: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are no address: unset them, or name a kubeconfig.')
  return {
    server,
    proxy: null,
    namespace: (await readIfThere(join(folder, 'namespace')))?.trim() || null,
    read: async () => ({
      tls: { ca: await readCredential(join(folder, 'ca.crt')) },
      headers: { authorization: `Bearer ${await readCredential(tokenPath)}` },
    }),
  }
}
