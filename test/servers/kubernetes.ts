import { existsSync } from 'node:fs'
import { dirname, join } from 'node:path'
import type { Test } from 'tap'
import { installed } from './client.ts'
import { startControlPlane, type ControlPlane } from './kube/control-plane.ts'
import { own, shared } from './shared.ts'

const PROGRAMS = ['etcd', 'kube-apiserver', 'kubectl', 'kube-controller-manager']

/** The folder of KUBEBUILDER_ASSETS, if it has the programs of a control plane. */
function given(): string | null {
  const folder = process.env['KUBEBUILDER_ASSETS']
  return folder !== undefined && PROGRAMS.every((program) => existsSync(join(folder, program))) ? folder : null
}

/** The folder of the control plane's programs. */
export function assets(): string {
  return given() ?? dirname(installed('kubernetes'))
}

export const KUBERNETES_NAMES = given() === null ? ['kubernetes'] : []

/** The path of kubectl beside the server. */
export function kubectl(): string {
  return join(assets(), 'kubectl')
}

/** Starts a control plane without nodes. `url` is the path of its kubeconfig. */
export function startKubernetes(apiServerFlags: string[] = []): Promise<ControlPlane> {
  return startControlPlane(assets(), apiServerFlags)
}

/** The kubeconfig of the shared API server (`TEST_KUBECONFIG`: never `KUBECONFIG`, which may name a real cluster); null if the suite is skipped. */
export function kubernetes(t: Test): Promise<string | null> {
  return shared(t, 'TEST_KUBECONFIG', KUBERNETES_NAMES, startKubernetes)
}

/** A private server that the test may kill and freeze. */
export function ownKubernetes(t: Test, apiServerFlags: string[] = []): Promise<ControlPlane | null> {
  return own(t, KUBERNETES_NAMES, () => startKubernetes(apiServerFlags))
}
