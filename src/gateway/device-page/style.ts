// The style of the page on which a person confirms a device login; its colours are those of the front page.
export const style = `
  :root { color-scheme: light dark; --ink: #1c2430; --quiet: #5b6676; --line: #d9dee6; --ground: #fbfbf9; --card: #fff;
    --accent: #a3432a; --on-accent: #fff; --wrong: #a3132a; --well: #1d6a4b; }
  @media (prefers-color-scheme: dark) { :root { --ink: #e6e9ee; --quiet: #9aa4b2; --line: #333b47; --ground: #14181e;
    --card: #1b212a; --accent: #f0916f; --on-accent: #14181e; --wrong: #ff9aa8; --well: #6fcfa3; } }
  * { box-sizing: border-box; }
  body { margin: 0; background: var(--ground); color: var(--ink); font: 17px/1.55 system-ui, sans-serif; }
  main { max-width: 32rem; margin: 0 auto; padding: clamp(1.5rem, 8vh, 5rem) 1.25rem 3rem; }
  h1 { font-size: clamp(1.5rem, 5.5vw, 1.9rem); line-height: 1.2; letter-spacing: -.02em; margin: 0 0 .6rem; }
  h2 { font-size: 1.25rem; margin: 0 0 .4rem; color: var(--well); }
  h1:focus, h2:focus { outline: none; }
  p { margin: .5rem 0; }
  section { margin-top: 1.3rem; padding: 1.2rem 1.25rem; border: 1px solid var(--line); border-radius: 10px;
    background: var(--card); }
  [hidden] { display: none !important; }
  .quiet { color: var(--quiet); font-size: .95rem; }
  .code, .compare { font: 600 1.7rem ui-monospace, "SF Mono", Menlo, Consolas, monospace; letter-spacing: .12em; margin: .2rem 0; }
  label { display: block; margin: .9rem 0 .3rem; font-weight: 600; }
  input, select { width: 100%; padding: .6rem .75rem; border: 1px solid var(--quiet); border-radius: 8px;
    background: var(--ground); color: inherit; font: inherit; }
  input[name=code] { font-family: ui-monospace, "SF Mono", Menlo, Consolas, monospace; letter-spacing: .12em;
    text-transform: uppercase; }
  .buttons { display: flex; flex-wrap: wrap; gap: .7rem; margin-top: 1.2rem; }
  button, a.button { padding: .6rem 1.2rem; border: 1px solid var(--quiet); border-radius: 8px; background: none; color: inherit;
    font: inherit; font-weight: 600; text-decoration: none; cursor: pointer; }
  .main { border-color: var(--accent); background: var(--accent); color: var(--on-accent); }
  button:disabled { opacity: .55; cursor: progress; }
  :focus-visible { outline: 3px solid var(--accent); outline-offset: 2px; }
  dl { display: grid; grid-template-columns: max-content 1fr; gap: .35rem 1rem; margin: 1rem 0 0; }
  dt { color: var(--quiet); }
  dd { margin: 0; overflow-wrap: anywhere; }
  [role=alert] { margin: 1rem 0 0; padding: .6rem .9rem; border-left: 4px solid var(--wrong); color: var(--wrong);
    background: var(--card); }
  [role=alert]:empty { display: none; }
  @media (max-width: 26rem) { .buttons > * { flex: 1 1 100%; text-align: center; } }
`;
