import { render } from 'preact'
import { App } from './app.tsx'
import { applyTheme } from './theme.ts'
import './styles/tokens.css'
import './styles/base.css'
import './styles/shell.css'
import './styles/components.css'
import './styles/pages.css'

applyTheme()
const root = document.getElementById('app')
if (root) render(<App />, root)
