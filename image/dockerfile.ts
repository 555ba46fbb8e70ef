/** Parser of the Dockerfile, so that it stays the only description of the image. */

/** Paths are those of the Dockerfile: sources relative to the checkout, targets in the image. */
export type Recipe = {
  /** Copies from the checkout in the stage and those that it is built from. */
  copies: { from: string; to: string }[]
  /** What `npm ci` is called with to install its packages. */
  install: string[]
  /** Debian packages that are installed. */
  packages: string[]
  workdir: string
  env: Record<string, string>
  user: string
  ports: string[]
  entrypoint: string[]
}

const EMPTY: Recipe = { copies: [], install: [], packages: [], workdir: '/', env: {}, user: '0:0', ports: [], entrypoint: [] }

/** Parses a stage of a Dockerfile as simple as ours, the last one by default. Throws for an unsupported instruction and an unknown stage. */
export function readDockerfile(text: string, target?: string): Recipe {
  const stages = new Map<string, Recipe>()
  let recipe: Recipe = EMPTY
  for (const line of text.split('\n').map((each) => each.trim())) {
    const [instruction = '', ...words] = line.split(/\s+/)
    if (line === '' || line.startsWith('#') || instruction === 'ARG') continue
    if (instruction === 'FROM') {
      recipe = structuredClone(stages.get(words[0] ?? '') ?? EMPTY)
      if (words[2] !== undefined) stages.set(words[2], recipe)
    } else if (instruction === 'WORKDIR') recipe.workdir = words[0] ?? '/'
    else if (instruction === 'ENV') for (const word of words) recipe.env[word.split('=', 1)[0] ?? ''] = word.slice(word.indexOf('=') + 1)
    else if (instruction === 'USER') recipe.user = words[0] ?? ''
    else if (instruction === 'EXPOSE') recipe.ports = words
    else if (instruction === 'ENTRYPOINT') recipe.entrypoint = JSON.parse(words.join(' '))
    else if (instruction === 'COPY') {
      const from = /^--from=(.+)$/.exec(words[0] ?? '')?.[1]
      recipe.copies.push(...(from === 'program' ? (stages.get(from)?.copies ?? []) : copiesOf(words)))
      if (words.at(-1) === './node_modules') recipe.install = stages.get(from ?? '')?.install ?? []
    } else if (instruction === 'RUN') {
      recipe.packages.push(...packagesOf(line))
      recipe.install = /^RUN npm ci ([^&]*)/.exec(line)?.[1]?.trim().split(/\s+/) ?? recipe.install
    }
    else throw new Error(`image/dockerfile.ts does not support the instruction ${instruction}`)
  }
  const found = target === undefined ? recipe : stages.get(target)
  if (!found) throw new Error(`the Dockerfile has no stage ${target}`)
  return found
}

/** Copies from other stages are skipped, but for the program: rootfs.ts makes those files. The target of a folder has its own name, that of a file has not. */
function copiesOf(words: string[]): Recipe['copies'] {
  if (words.some((word) => word.startsWith('--from='))) return []
  const target = words.at(-1) ?? ''
  return words.slice(0, -1).map((from) => ({ from, to: target === './' ? from : target }))
}

function packagesOf(run: string): string[] {
  const [, names = ''] = /apt-get install ([^&]*)/.exec(run) ?? []
  return names.split(/\s+/).filter((word) => word !== '' && !word.startsWith('-'))
}
