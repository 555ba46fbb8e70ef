/** Dark or light: the system's preference, or what the person chose on this browser. */
import { signal } from '@preact/signals'

export type Theme = 'system' | 'light' | 'dark'
const KEY = 'tollgate-theme'

function stored(): Theme {
  const value = localStorage.getItem(KEY)
  return value === 'light' || value === 'dark' ? value : 'system'
}

export const theme = signal<Theme>(stored())

/** Sets the attribute that tokens.css reads. */
export function applyTheme(): void {
  if (theme.value === 'system') delete document.documentElement.dataset['theme']
  else document.documentElement.dataset['theme'] = theme.value
}

/** Chooses a theme and keeps it for the next visit. */
export function setTheme(chosen: Theme): void {
  theme.value = chosen
  if (chosen === 'system') localStorage.removeItem(KEY)
  else localStorage.setItem(KEY, chosen)
  applyTheme()
}
