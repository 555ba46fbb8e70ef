/** Which decorators of Fastify a plugin uses, and which it declares, by the text of its files. */

/** The members of Fastify that a text adds to an interface. */
export function declaredMembers(text: string, of: 'FastifyInstance' | 'FastifyRequest'): string[] {
  const [, modules = ''] = /^declare module 'fastify' \{\n([\s\S]*?)^\}/m.exec(text) ?? []
  const [, members = ''] = new RegExp(`^  interface ${of} \\{\\n([\\s\\S]*?)^  \\}`, 'm').exec(modules) ?? []
  return [...members.matchAll(/^ {4}(\w+)[?(:]/gm)].map(([, name]) => name ?? '')
}

const HOLDERS = { fastify: 'app|scope|server', request: 'request' }
const TYPES = { fastify: 'FastifyInstance', request: 'FastifyRequest' }

/** The members that a text reads from an app or a request: `app.store`, `const { store } = app`, `({ store }: FastifyInstance)`. */
function membersRead(text: string, of: keyof typeof HOLDERS): string[] {
  const direct = [...text.matchAll(new RegExp(`(?<![\\w.]|request\\.)(?:request\\.)?\\b(?:${HOLDERS[of]})\\.(\\w+)`, 'g'))].map(([, name]) => name ?? '')
  const taken = [...text.matchAll(new RegExp(`\\{([^{}]*)\\}(?: = (?:request\\.)?(?:${HOLDERS[of]})\\b(?![.(])|: (?:Pick<)?${TYPES[of]}\\b)`, 'g'))]
  return [...direct, ...taken.flatMap(([, names = '']) => names.split(',').map((name) => name.trim().split(/\W/)[0] ?? ''))]
}

/** What the files of a plugin use of `known` decorators, without those that it adds itself and those that it asks for by `hasDecorator`. */
export function decoratorsUsed(texts: string[], known: Set<string>, of: 'fastify' | 'request'): string[] {
  const all = texts.map((text) => text.replace(/\/\*[\s\S]*?\*\/|\/\/ .*/g, '')).join('\n')
  const own = [...all.matchAll(/\b(?:decorate|decorateRequest|hasDecorator|hasRequestDecorator)\('(\w+)'/g)].map(([, name]) => name)
  return [...new Set(membersRead(all, of))].filter((name) => known.has(name) && !own.includes(name)).sort()
}

/** What the plugin of a text declares: `decorators: { fastify: […], request: […] }`. */
export function decoratorsDeclared(text: string, of: 'fastify' | 'request'): string[] {
  const [, declared = ''] = /\bdecorators: \{([\s\S]*?)\},?\s*\}\)/.exec(text) ?? []
  const [, names = ''] = new RegExp(`\\b${of}: \\[([^\\]]*)\\]`).exec(declared) ?? []
  return [...names.matchAll(/'(\w+)'/g)].map(([, name]) => name ?? '').sort()
}
