// The style of the login page and of the page for device logins. The script sets `--accent` and
// `--on-accent` to the colour of the Bureau.
export const style = `
  :root { color-scheme: light dark; --ink: #1c2430; --quiet: #5b6676; --line: #dfe3ea; --field: #8a94a3; --ground: #f4f4f1;
    --card: #ffffff; --accent: #a3432a; --on-accent: #fff; --edge: transparent; --wrong: #a3132a; --wrong-ground: #fdf1f2; --well: #1d6a4b;
    --focus: #2563c9; --shade: 0 1px 2px #1c24300f, 0 12px 32px -12px #1c243029; }
  @media (prefers-color-scheme: dark) { :root { --ink: #e6e9ee; --quiet: #a2abb8; --line: #333b47; --field: #6b7686;
    --ground: #12161b; --card: #1b212a; --wrong: #ffa3b0; --wrong-ground: #2f1d24; --well: #7fd6ae;
    --focus: #8ab4ff; --shade: 0 12px 32px -12px #000a; } }
  * { box-sizing: border-box; }
  html { background: var(--ground); }
  body { margin: 0; min-height: 100vh; min-height: 100dvh; display: grid; background: var(--ground); color: var(--ink);
    font: 16px/1.5 system-ui, sans-serif; }
  main { width: 100%; max-width: 27rem; margin: auto; padding: 2rem 1.25rem; }
  #card { padding: 2.25rem 2.25rem 2rem; border: 1px solid var(--line); border-radius: 16px; background: var(--card);
    box-shadow: var(--shade); }
  #card[aria-busy=true] { min-height: 20rem; }
  .mark { display: grid; place-items: center; width: 3rem; height: 3rem; margin: 0 0 1.25rem; border-radius: 12px;
    border: 1px solid var(--edge); background: var(--accent); color: var(--on-accent); font-size: 1.4rem; font-weight: 650; }
  .mark.refusal { background: var(--wrong-ground); color: var(--wrong); }
  h1 { margin: 0; font-size: 1.5rem; line-height: 1.25; letter-spacing: -.015em; overflow-wrap: anywhere; text-wrap: balance; }
  h1:focus { outline: none; }
  p { margin: .4rem 0 0; overflow-wrap: anywhere; }
  .lead { color: var(--quiet); }
  .lead b { color: var(--ink); font-weight: 600; }
  form { margin-top: 1.5rem; }
  label { display: block; margin: 1rem 0 .35rem; font-size: .925rem; font-weight: 600; }
  .hint { margin: .35rem 0 0; color: var(--quiet); font-size: .875rem; }
  .detail { margin-top: 1.25rem; padding-top: 1.25rem; border-top: 1px solid var(--line); }
  .password { position: relative; }
  .password input { padding-inline-end: 4.25rem; }
  .password .link { position: absolute; inset-block: 0; inset-inline-end: .8rem; font-size: .875rem; }
  .after { margin: .5rem 0 0; font-size: .925rem; }
  .notice { margin-top: 1.25rem; padding: .7rem .9rem; border: 1px solid color-mix(in srgb, var(--well) 35%, transparent);
    border-radius: 10px; color: var(--well); font-size: .95rem; }
  input, select { width: 100%; min-height: 2.9rem; padding: .55rem .8rem; border: 1px solid var(--field); border-radius: 10px;
    background: var(--card); color: inherit; font: inherit; }
  input.code { font: 600 1.25rem ui-monospace, "SF Mono", Menlo, Consolas, monospace; letter-spacing: .18em; }
  input[aria-invalid=true] { border-color: var(--wrong); }
  button, a.main { font: inherit; cursor: pointer; }
  .main, .other { display: block; width: 100%; min-height: 2.9rem; padding: .55rem 1rem; border-radius: 10px; font-weight: 600; }
  .main { margin-top: 1.5rem; border: 1px solid var(--edge); background: var(--accent);
    color: var(--on-accent); }
  .main:hover:enabled { background: color-mix(in srgb, var(--accent) 90%, var(--ink)); }
  .other { margin-top: .7rem; border: 1px solid var(--field); background: none; color: inherit; }
  .other:hover:enabled { background: var(--ground); }
  .others { margin-top: 1.5rem; }
  button:disabled { opacity: .6; cursor: progress; }
  .link { padding: .25rem 0; border: 0; background: none; color: var(--ink); font-weight: 500; text-decoration: underline;
    text-decoration-color: color-mix(in srgb, currentColor 40%, transparent); text-underline-offset: .2em; }
  .link:hover { text-decoration-color: currentColor; }
  .links { display: flex; flex-wrap: wrap; justify-content: center; gap: .35rem 1.75rem; margin-top: 1.25rem; font-size: .95rem; }
  .links p { flex-basis: 100%; margin: 0; text-align: center; color: var(--quiet); }
  .or { display: flex; align-items: center; gap: .9rem; margin: 1.4rem 0 -.3rem; color: var(--quiet); font-size: .875rem; }
  .or::before, .or::after { content: ""; flex: 1; border-top: 1px solid var(--line); }
  .or + form { margin-top: 0; }
  :focus-visible { outline: 3px solid var(--focus); outline-offset: 2px; border-radius: 10px; }
  .link:focus-visible { border-radius: 4px; }
  [role=alert] { margin-top: 1.25rem; padding: .7rem .9rem; border: 1px solid color-mix(in srgb, var(--wrong) 35%, transparent);
    border-radius: 10px; background: var(--wrong-ground); color: var(--wrong); font-size: .95rem; }
  form [role=alert] { margin: 0; }
  .or + form [role=alert] { margin-top: 1.25rem; }
  [role=alert]:empty { display: none; }
  .wait { display: flex; align-items: center; gap: .75rem; margin-top: 1.5rem; color: var(--quiet); }
  .wait::before { content: ""; width: 1.1rem; height: 1.1rem; border: 2px solid var(--line); border-top-color: var(--ink);
    border-radius: 50%; animation: turn .8s linear infinite; }
  @keyframes turn { to { transform: rotate(1turn); } }
  @media (prefers-reduced-motion: reduce) { .wait::before { animation: none; } }
  @media (max-width: 30rem) { html, body { background: var(--card); } main { margin: 0; padding: 0; }
    #card { padding: 2.5rem 1.25rem 2rem; border: 0; border-radius: 0; box-shadow: none; } .other:hover:enabled { background: none; } }
`;
