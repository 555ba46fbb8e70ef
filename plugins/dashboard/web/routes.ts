/** The list of pages. All but Home are loaded by need. */
import type { ComponentType } from 'preact'
import { Home } from './pages/home/home.tsx'

/** A page gets the last segment of its address where that varies. */
export type Page = ComponentType<{ id: string }>
type Route = { pattern: RegExp; title: string; load: () => Page | Promise<Page> }

export const ROUTES: Route[] = [
  { pattern: /^\/$/, title: 'Home', load: () => Home },
  { pattern: /^\/keys$/, title: 'API Keys', load: async () => (await import('./pages/keys/keys.tsx')).Keys },
  { pattern: /^\/usage\/media$/, title: 'Media usage', load: async () => (await import('./pages/usage/media.tsx')).MediaUsage },
  { pattern: /^\/usage\/coding$/, title: 'Coding usage', load: async () => (await import('./pages/usage/coding.tsx')).CodingUsage },
  { pattern: /^\/room$/, title: 'AI Room', load: async () => (await import('./room/room.tsx')).Room },
  { pattern: /^\/tasks$/, title: 'Tasks', load: async () => (await import('./pages/tasks/tasks.tsx')).Tasks },
  { pattern: /^\/tasks\/[^/]+$/, title: 'Task', load: async () => (await import('./pages/tasks/task.tsx')).TaskPage },
]
