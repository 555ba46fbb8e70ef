/** Further tools for the chart and its release: Checkov, actionlint, Argo CD's Lua, and the CRDs of the chart's optional objects. */
import { copyFile } from 'node:fs/promises'
import { basename, join } from 'node:path'
import type { Entry } from './cache.ts'
import { go, goProgram, lacksGo } from './go.ts'
import { pythonPackage } from './python.ts'

/** Projects whose kinds the chart uses where a cluster has them, and the CRD files of their modules. The newest versions for Go 1.26. */
const MODULES = [
  { module: 'github.com/kedacore/keda/v2@v2.21.0', files: ['config/crd/bases/keda.sh_scaledobjects.yaml'] },
  { module: 'github.com/prometheus-operator/prometheus-operator@v0.85.0', files: ['servicemonitors', 'podmonitors', 'prometheusrules'].map((kind) => `example/prometheus-operator-crd/monitoring.coreos.com_${kind}.yaml`) },
  { module: 'sigs.k8s.io/gateway-api@v1.6.3', files: ['config/crd/standard/gateway.networking.k8s.io_httproutes.yaml'] },
]

const crds: Entry = {
  name: 'chart-crds',
  // Of this list: raise it when a module's version changes.
  version: '3',
  program: 'keda.sh_scaledobjects.yaml',
  lacks: lacksGo,
  async install(folder) {
    for (const { module, files } of MODULES) {
      const { Dir } = JSON.parse(await go(['mod', 'download', '-json', module], folder, { GOFLAGS: '-mod=mod' })) as { Dir: string }
      for (const file of files) await copyFile(join(Dir, file), join(folder, basename(file)))
    }
  },
}

export const CHART_TOOLS: readonly Entry[] = [crds, pythonPackage('checkov', 'checkov', '3.3.30'), goProgram('actionlint', 'github.com/rhysd/actionlint/cmd/actionlint', '1.7.12'), goProgram('glua', 'github.com/yuin/gopher-lua/cmd/glua', '1.1.1')]
