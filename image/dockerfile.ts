/** What the Dockerfile says of the image, so that it is said once. */

/** Paths are those of the Dockerfile: sources from the checkout's root, targets from the image's. */
export type Recipe = {
  /** The last stage's own copies of the checkout. */
  copies: { from: string; to: string }[]
  workdir: string
  env: Record<string, string>
  user: string
  ports: string[]
  entrypoint: string[]
}

/** Reads the last stage of a Dockerfile as simple as ours: throws for what it does not know. */
export function readDockerfile(text: string): Recipe {
  const recipe: Recipe = { copies: [], workdir: '/', env: {}, user: '0:0', ports: [], entrypoint: [] }
  for (const line of text.split('\n').map((each) => each.trim())) {
    const [instruction = '', ...words] = line.split(/\s+/)
    if (line === '' || line.startsWith('#')) continue
    if (instruction === 'FROM') Object.assign(recipe, { copies: [], workdir: '/', env: {} })
    else if (instruction === 'WORKDIR') recipe.workdir = words[0] ?? '/'
    else if (instruction === 'ENV') for (const word of words) recipe.env[word.split('=', 1)[0] ?? ''] = word.slice(word.indexOf('=') + 1)
    else if (instruction === 'USER') recipe.user = words[0] ?? ''
    else if (instruction === 'EXPOSE') recipe.ports = words
    else if (instruction === 'ENTRYPOINT') recipe.entrypoint = JSON.parse(words.join(' '))
    else if (instruction === 'COPY') recipe.copies.push(...copiesOf(words))
    else if (instruction !== 'RUN') throw new Error(`the Dockerfile says ${instruction}, which image/dockerfile.ts does not know`)
  }
  return recipe
}

/** What comes from another stage is made in another way. A folder's own name is said in the target, a file's is not. */
function copiesOf(words: string[]): Recipe['copies'] {
  if (words.some((word) => word.startsWith('--from='))) return []
  const target = words.at(-1) ?? ''
  return words.slice(0, -1).map((from) => ({ from, to: target === './' ? from : target }))
}
