/** Who an API server takes us for. */
import { openClient } from '../../../src/backends/resources/kubernetes/api-client.ts'
import { openCredentials } from '../../../src/backends/resources/kubernetes/credentials/credentials.ts'

/** The user name of the credentials of a kubeconfig (SelfSubjectReview), or the message of the refusal. */
export async function userNameOf(...of: Parameters<typeof openCredentials>): Promise<string> {
  const credentials = await openCredentials(...of)
  try {
    const review = { apiVersion: 'authentication.k8s.io/v1', kind: 'SelfSubjectReview' }
    const { body } = await openClient(credentials).request<{ status?: { userInfo: { username: string } } }>('POST', '/apis/authentication.k8s.io/v1/selfsubjectreviews', { body: review })
    return body.status?.userInfo.username ?? String(body.message)
  } finally {
    await credentials.close()
  }
}
