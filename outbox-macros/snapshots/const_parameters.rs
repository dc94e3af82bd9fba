#[automatically_derived]
impl<const A: i8, const B: bool> facade::outbox::__private::OutboxEvent for r#Level<A, B>
where
    Self: facade::outbox::__private::Serialize,
{
    const TYPES: facade::outbox::__private::TypeSet = facade::outbox::__private::TypeSet::One(const {
        &facade::outbox::__private::EventMeta::new(
            const {
                &facade::outbox::__private::ConstName::new()
                    .push("level.")
                    .push_signed(A as i128)
                    .push(".")
                    .push_bool(B)
            }
                .as_str(),
            1u32,
            "level",
            facade::outbox::__private::Option::Some("/meter"),
            const { &[] },
            facade::outbox::__private::concat!(
                facade::outbox::__private::module_path!(), "::Level"
            ),
        )
    });
    fn meta(&self) -> &'static facade::outbox::__private::EventMeta {
        match self {
            Self { .. } => {
                const {
                    &facade::outbox::__private::EventMeta::new(
                        const {
                            &facade::outbox::__private::ConstName::new()
                                .push("level.")
                                .push_signed(A as i128)
                                .push(".")
                                .push_bool(B)
                        }
                            .as_str(),
                        1u32,
                        "level",
                        facade::outbox::__private::Option::Some("/meter"),
                        const { &[] },
                        facade::outbox::__private::concat!(
                            facade::outbox::__private::module_path!(), "::Level"
                        ),
                    )
                }
            }
        }
    }
    fn aggregate_id(
        &self,
    ) -> facade::outbox::__private::Option<facade::outbox::__private::Cow<'_, str>> {
        match self {
            Self { .. } => {
                facade::outbox::__private::Option::Some(
                    facade::outbox::__private::Cow::Borrowed("all {levels}"),
                )
            }
        }
    }
    fn encode(
        &self,
        codec: &dyn facade::outbox::__private::Codec,
    ) -> facade::outbox::__private::OutboxResult<facade::outbox::__private::Vec<u8>> {
        facade::outbox::__private::encode(self, codec)
    }
}
#[automatically_derived]
impl<const A: i8, const B: bool> facade::outbox::__private::DecodeEvent for r#Level<A, B>
where
    Self: facade::outbox::__private::Serialize,
    for<'__de> Self: facade::outbox::__private::Readable<'__de>,
{
    fn decode(
        message: &facade::outbox::__private::Message,
        codecs: &facade::outbox::__private::Codecs,
    ) -> facade::outbox::__private::OutboxResult<Self> {
        facade::outbox::__private::read(message, codecs)
    }
}
