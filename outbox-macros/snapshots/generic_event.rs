#[automatically_derived]
impl<C: Currency> ::outbox::__private::OutboxEvent for OrderPaid<C>
where
    Self: ::outbox::__private::Serialize,
{
    const TYPES: ::outbox::__private::TypeSet = ::outbox::__private::TypeSet::One(const {
        &::outbox::__private::EventMeta::new(
            const {
                &::outbox::__private::ConstName::new().push("order.paid.").push(C::CODE)
            }
                .as_str(),
            1u32,
            "order",
            ::outbox::__private::Option::None,
            const { &["paid"] },
            ::outbox::__private::concat!(
                ::outbox::__private::module_path!(), "::OrderPaid"
            ),
        )
    });
    fn meta(&self) -> &'static ::outbox::__private::EventMeta {
        match self {
            Self { .. } => {
                const {
                    &::outbox::__private::EventMeta::new(
                        const {
                            &::outbox::__private::ConstName::new()
                                .push("order.paid.")
                                .push(C::CODE)
                        }
                            .as_str(),
                        1u32,
                        "order",
                        ::outbox::__private::Option::None,
                        const { &["paid"] },
                        ::outbox::__private::concat!(
                            ::outbox::__private::module_path!(), "::OrderPaid"
                        ),
                    )
                }
            }
        }
    }
    fn aggregate_id(
        &self,
    ) -> ::outbox::__private::Option<::outbox::__private::Cow<'_, str>> {
        match self {
            Self { customer: __customer, order_id: __order_id, .. } => {
                ::outbox::__private::Option::Some(
                    ::outbox::__private::Cow::Owned(
                        ::outbox::__private::format!("{}-{}", __customer.id, __order_id),
                    ),
                )
            }
        }
    }
    fn headers(
        &self,
        headers: &mut ::outbox::__private::Headers,
    ) -> ::outbox::__private::OutboxResult<()> {
        match self {
            Self { tenant: __tenant, .. } => {
                if let ::outbox::__private::Option::Some(__tenant) = __tenant {
                    ::outbox::__private::Headers::insert(
                        headers,
                        "tenant",
                        ::outbox::__private::Text::text(__tenant),
                    )?;
                }
            }
        }
        ::outbox::__private::Result::Ok(())
    }
    fn encode(
        &self,
        codec: &dyn ::outbox::__private::Codec,
    ) -> ::outbox::__private::OutboxResult<::outbox::__private::Vec<u8>> {
        ::outbox::__private::encode(self, codec)
    }
}
#[automatically_derived]
impl<C: Currency> ::outbox::__private::DecodeEvent for OrderPaid<C>
where
    Self: ::outbox::__private::Serialize,
    for<'__de> Self: ::outbox::__private::Readable<'__de>,
{
    fn decode(
        message: &::outbox::__private::Message,
        codecs: &::outbox::__private::Codecs,
    ) -> ::outbox::__private::OutboxResult<Self> {
        ::outbox::__private::read(message, codecs)
    }
}
