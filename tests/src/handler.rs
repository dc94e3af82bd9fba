//! Handlers by hand, for tests that are not about the macros.

/// Declares handlers that run on every database: `handler!(pub Name, consumer "c", types [META], run function)`.
///
/// With `alias "before"` behind its consumer, that was called so. With `effect External` behind it, it runs outside of transactions; its context has no connection then.
///
/// `function` is an `async fn<DB: TestBackend>(&mut Context<DB>) -> Result<(), HandlerError>`, and each META a
/// static [`EventMeta`](outbox::EventMeta).
#[macro_export]
macro_rules! handler {
    ($(#[$attribute:meta])* $visibility:vis $name:ident, consumer $consumer:literal $(, alias $alias:literal)*, types [$($meta:path),+ $(,)?], run $function:path) => {
        $crate::handler!($(#[$attribute])* $visibility $name, consumer $consumer $(, alias $alias)*, types [$($meta),+], run $function, effect Database);
    };
    ($(#[$attribute:meta])* $visibility:vis $name:ident, consumer $consumer:literal $(, alias $alias:literal)*, types [$($meta:path),+ $(,)?], run $function:path, effect $effect:ident) => {
        $(#[$attribute])*
        #[derive(Debug)]
        $visibility struct $name;

        impl<DB: $crate::TestBackend> ::outbox::Handler<DB> for $name {
            const VTABLE: ::outbox::__private::HandlerVTable<DB> = ::outbox::__private::HandlerVTable {
                name: stringify!($name),
                consumer: $consumer,
                aliases: &[$($alias),*],
                types: ::outbox::TypeSet::Any(&[$(::outbox::TypeSet::One(&$meta)),+]),
                options: ::outbox::HandlerOptions::DEFAULT,
                site: ::outbox::Site::new(module_path!(), file!(), line!()),
                check: |_| Ok(()),
                batched: false,
                effect: ::outbox::Effect::$effect,
                call: |ctx| {
                    Box::pin(async { ::outbox::__private::HandlerReturn::into_result($function(ctx).await) })
                },
            };
        }
    };
}
